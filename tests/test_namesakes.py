"""Other packages that are called `agents`, too."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def warnings_of(*paths, program="import agents"):
    """Lines on the error stream of a program that imports ours first."""
    program = f"import sys; sys.path[:] = {[*map(str, paths)]} + sys.path; {program}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return [x for x in done.stderr.splitlines() if "Warning" in x]


@pytest.fixture
def foreign(tmp_path):
    """Directory of another package of the name."""
    package = tmp_path / "elsewhere" / "agents"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package


def test_alone_nothing_is_said(tmp_path):
    (tmp_path / "agents").mkdir()  # Somebody's runs: not a package.
    assert warnings_of(ROOT, tmp_path) == []


def test_namesake_on_the_path_is_named(foreign):
    (line,) = warnings_of(ROOT, foreign.parent)
    assert f"{foreign} is another package that is imported as 'agents'" in line
    assert f"The one in use is {ROOT / 'agents'}." in line


def test_namesake_in_the_same_directory_is_named(tmp_path):
    (tmp_path / "agents").symlink_to(ROOT / "agents")
    metadata = tmp_path / "openai_agents-0.2.0.dist-info"
    metadata.mkdir()
    (line,) = warnings_of(tmp_path)
    assert f"{metadata} is another package" in line


def test_processes_of_workers_do_not_repeat_it(foreign):
    program = (
        "import multiprocessing as m, agents;"
        "p = m.get_context('spawn').Process(target=agents.lazy.attach, args=('agents', {}));"
        "p.start(); p.join(); assert p.exitcode == 0"
    )
    assert len(warnings_of(ROOT, foreign.parent, program=program)) == 1
