"""Pages of algorithms say what the code says, also where no Sphinx is installed."""

import ast
import dataclasses
import importlib.util
import json
import pathlib
import re

import gymnasium
import pytest

from agents.experiments import config, goals
from agents.networks.config import NetworkConfig
from agents.tools import bounds, schedules

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGES = {x.stem: x for x in DOCS.glob("algorithms/*.md")}
KINDS = {"a2c": "vpg"} | {
    x: x for x in ("apex", "dqn", "impala", "ppo", "sac", "td3", "trpo", "vpg")
}
"""Pages of algorithms by their type."""


def extension(name):
    """Module of an extension of Sphinx."""
    path = DOCS / "extensions" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fields, results = extension("fields"), extension("results")


@dataclasses.dataclass
class Base:
    type: str = "base"
    rate: bounds.NotNegative = 1e-3
    """Learning
    rate."""
    share: bounds.Share | None = None
    """Part | whole."""


@dataclasses.dataclass
class Derived(Base):
    rate: bounds.NotNegative = schedules.Schedule("linear", 1.0, 0.0, 20_000)
    sizes: tuple[int, ...] = (1, 2)
    """Numbers."""
    network: NetworkConfig = NetworkConfig(layers=(64,))
    options: dict = dataclasses.field(default_factory=lambda: {"on": True, "x": None})


def test_fields_have_types_defaults_and_inherited_docstrings():
    rate = "{type: linear, from: 1.0, to: 0.0, over: 20_000}"
    found = fields.fields(Derived)
    assert [(x[0], x[1].replace("\N{NO-BREAK SPACE}", " "), *x[2:]) for x in found] == [
        ("rate", "float or schedule, ≥ 0", rate, "Learning rate."),
        (
            *("share", "float or schedule or none, in (0, 1]"),
            *("null", "Part | whole."),
        ),
        ("sizes", "tuple of int", "[1, 2]", "Numbers."),
        ("network", "NetworkConfig", "{layers: [64]}", ""),
        ("options", "dict", "{on: true, x: null}", ""),
    ]
    assert r"Part \| whole." in fields.table(Derived)


@pytest.mark.parametrize("kind", [*KINDS, "hindsight"])
def test_fields_of_pages_have_docstrings(kind):
    cls = (
        goals.HindsightConfig if kind == "hindsight" else config.algorithm_config(kind)
    )
    found = fields.fields(cls)
    assert [x.name for x in found if not x.meaning] == []


@pytest.mark.parametrize("kind", KINDS)
def test_pages_explain_all_metrics(kind):
    cls, settings = config.algorithm_class(kind), config.algorithm_config(kind)
    sizes = {"capacity": 64, "batch_size": 8, "start_size": 8}
    known = {x.name for x in dataclasses.fields(settings)}
    made = settings(**{k: x for k, x in sizes.items() if k in known})
    box = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action = box if kind == "td3" else gymnasium.spaces.Discrete(2)
    agent = cls(box, action, 2, 8, made)
    text = PAGES[KINDS[kind]].read_text()
    missing = [x for x in agent.metrics.names if f"`{x}`" not in text]
    assert missing == []


@pytest.mark.parametrize("name", PAGES)
def test_pages_include_what_exists(name):
    text = PAGES[name].read_text()
    for path, place in re.findall(r"literalinclude} (\S+)\n:pyobject: (\S+)", text):
        body = ast.parse((PAGES[name].parent / path).read_text()).body
        for part in place.split("."):
            (found,) = (x for x in body if getattr(x, "name", None) == part)
            body = found.body
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, name, "exec"), {})
    for test in re.findall(r"`(tests/\S+?)`", text):
        assert (DOCS.parent / test).exists(), test


def test_results_show_all_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    finals = [{"mean_return": x, "step": 2_000} for x in (-1_500.0, 1_200.4, 0.25)]
    data = {"finals": dict(enumerate(finals))}
    (tmp_path / "ant.json").write_text(json.dumps(data))
    found = results.text(["ant", "ant_clip"])
    row = found.splitlines()[2].split(" | ")[1:]
    robust = "-49.8 (-1,500 to 1,200)"  # Of data without the interval, too.
    assert row == ["2,000", "3", "-99.8", robust, "-1,500", "1,200 |"]
    assert found.endswith("without committed results: `ant_clip`.")
    finals[1]["step"] = 1_000
    data = {"finals": dict(enumerate(finals))}
    (tmp_path / "ant.json").write_text(json.dumps(data))
    rows = [x.split(" | ")[1:4] for x in results.text(["ant"]).splitlines()[2:4]]
    assert rows == [["1,000", "1", "1,200"], ["2,000", "2", "-750"]]
    with pytest.raises(ValueError, match="no configs: aunt"):
        results.text(["aunt"])


def test_results_show_variants(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    data = {"finals": {"0": {"mean_return": 5_241.0, "step": 10_000_000}}}
    (tmp_path / "ant_gae.json").write_text(json.dumps(data))
    found = results.text(["ant", "ant_gae"])
    row = found.splitlines()[2].split(" | ")
    assert "`ant_gae <" in row[0]
    assert row[1:4] == ["10,000,000", "1", "5,241"]
    assert found.endswith("without committed results: `ant`.")
    with pytest.raises(ValueError, match="no configs: ant_unmeasured"):
        results.text(["ant_unmeasured"])
