# `make` alone says what there is. Everything is installed into .venv.

CONFIG ?= pendulum
ARGS ?=
PYTEST_ARGS ?=
VENV := .venv
REQUIREMENTS := pyproject.toml constraints.txt
# Hundreds of processes of the tests import the package, which compiles it once.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/python -m pytest

.PHONY: help train test test-slow lint format docs clean

help:
	@echo "make train CONFIG=pendulum [ARGS='--seed 1 --set train.steps=50000']"
	@echo "                 train a config; other commands: $(VENV)/bin/agents --help"
	@echo "make test        check style and run the tests [PYTEST_ARGS='-k plot']"
	@echo "make test-slow   run the tests that take minutes"
	@echo "make lint        check style"
	@echo "make format      fix style"
	@echo "make docs        build the pages into docs/_build/index.html"
	@echo "make clean       remove the installation and caches, but no runs"

train: $(VENV)/installed
	@$(VENV)/bin/agents train --config $(CONFIG) $(ARGS)

# One process more than CI has processors, since tests also wait.
test: lint
	$(PYTEST) -n 3 --dist loadgroup $(PYTEST_ARGS)

test-slow: $(VENV)/installed-dev
	$(PYTEST) -m slow $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

format: $(VENV)/installed-dev
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

docs: $(VENV)/installed-docs
	$(VENV)/bin/python -m sphinx -q -n -W --keep-going -j auto docs docs/_build
	@$(VENV)/bin/python benchmarks/gallery.py --outdir docs/_build/gallery
	@echo "Open docs/_build/index.html"

clean:
	rm -rf $(VENV) build dist docs/_build docs/api .pytest_cache .ruff_cache *.egg-info
	find agents tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A healthy environment is kept and only brought up to date.
define create_venv
@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || { \
	for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
			2>/dev/null && exec $$python -m venv --clear $(VENV); \
	done; \
	echo "error: no Python from 3.11 to 3.13 found; install one, or name it:" \
		"make PYTHON=/path/to/python3.12" >&2; \
	exit 2; \
}
endef

$(VENV)/installed: $(REQUIREMENTS)
	@echo "Installing into $(VENV); this happens once and takes a few minutes."
	$(create_venv)
	@$(VENV)/bin/python -m pip install -qq -e . -c constraints.txt
	@touch $@

$(VENV)/installed-dev: $(REQUIREMENTS)
	@echo "Installing with test tools into $(VENV); this happens once and takes" \
		"a few minutes."
	$(create_venv)
	@$(VENV)/bin/python -m pip install -qq -e '.[dev]' -c constraints.txt
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: $(REQUIREMENTS)
	@echo "Installing with tools for the pages into $(VENV); this happens once and" \
		"takes a few minutes."
	$(create_venv)
	@$(VENV)/bin/python -m pip install -qq -e '.[docs]' -c constraints.txt
	@touch $(VENV)/installed $@
