"""Configs from plain values."""

import dataclasses
import typing

import pytest
from declared import FULL, Config, Inner, Network, build, error

from agents.tools import config, schedules, sections


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"steps": 1e6}, Config(steps=1_000_000)),
        ({"steps": 5.0}, Config(steps=5)),
        ({"rate": 1}, Config(rate=1.0)),
        ({"rate": "1e-4"}, Config(rate=1e-4)),
        ({"schedule": None}, Config(schedule=None)),
        ({"schedule": 1}, Config(schedule=1.0)),
        ({"jit": True}, Config(jit=True)),
        ({"size": [5, 6]}, Config(size=(5, 6.0))),
        ({"network": "big"}, Config(network=Network((512,)))),
        ({"network": {"layers": []}}, Config(network=Network(()))),
        (
            {"network": {"filters": [[1, 2], [3, 4]]}},
            Config(network=Network(filters=((1, 2), (3, 4)))),
        ),
        ({"inner": {"limit": 3}}, Config(inner=Inner(limit=3))),
        ({"inner": {"limit": None}}, Config(inner=Inner())),
        ({"inner": None}, Config()),
        ({"options": {"x": 1}}, Config(options={"x": 1})),
        ({"anything": (1, "a")}, Config(anything=(1, "a"))),
        (
            {"schedule": {"type": "cosine", "from": 1, "to": "1e-1", "over": 1e5}},
            Config(schedule=schedules.Schedule("cosine", 1.0, 0.1, 1e5)),
        ),
        (
            {"schedule": {"type": "constant", "from": 1}},
            Config(schedule=schedules.Schedule("constant", 1.0)),
        ),
        (
            {"schedule": {"type": "polynomial", "from": 1, "to": 0, "over": 9}},
            Config(schedule=schedules.Schedule("polynomial", 1.0, 0.0, 9.0, 1.0)),
        ),
        (
            {
                "schedule": {
                    "type": "polynomial",
                    "from": 1,
                    "to": 0,
                    "over": "1e6",
                    "power": "2",
                }
            },
            Config(schedule=schedules.Schedule("polynomial", 1.0, 0.0, 1e6, 2.0)),
        ),
    ],
)
def test_values_become_the_types_of_their_fields(values, expected):
    built = sections.build(Config, values)
    assert built == expected
    for field in dataclasses.fields(Config):
        ours, theirs = (getattr(x, field.name) for x in (built, expected))
        assert type(ours) is type(theirs)


def test_element_types_are_converted_too():
    built = build(size=[5.0, 6], network={"layers": [8.0]})
    assert [type(x) for x in built.size] == [int, float]
    assert type(built.network.layers[0]) is int
    assert config.convert(list[float], [1, "1e-4"], "x") == [1.0, 1e-4]
    assert config.convert(tuple, [1, "a"], "x") == (1, "a")
    mode = typing.Literal["fast", "exact"]
    assert config.convert(mode, "fast", "x") == "fast"
    with pytest.raises(
        config.ConfigError, match=r"must be typing.Literal\['fast', 'exact'\], got"
    ):
        config.convert(mode, "slow", "x")
    assert config.convert(dict[str, float], {"a": "1e-4"}, "x") == {"a": 1e-4}
    with pytest.raises(config.ConfigError, match="key 'x' must be str, got 1"):
        config.convert(list[str], ["a", 1], "x")
    with pytest.raises(config.ConfigError, match="key 'x.a' must be float, got 'b'"):
        config.convert(dict[str, float], {"a": "b"}, "x")


@pytest.mark.parametrize(
    ("values", "path", "rest"),
    [
        ({"steps": 1.5}, "steps", "int, got 1.5"),
        ({"steps": "7"}, "steps", "int, got '7'"),
        ({"steps": True}, "steps", "int, got True"),
        ({"steps": None}, "steps", "int, got None"),
        ({"steps": float("inf")}, "steps", "int, got inf"),
        ({"rate": "fast"}, "rate", "float, got 'fast'"),
        ({"rate": True}, "rate", "float, got True"),
        ({"rate": [1]}, "rate", r"float, got \[1\]"),
        ({"jit": 1}, "jit", "bool, got 1"),
        ({"jit": "true"}, "jit", "bool, got 'true'"),
        ({"name": 5}, "name", "str, got 5"),
        ({"name": None}, "name", "str, got None"),
        ({"size": [1]}, "size", r"got \[1\]"),
        ({"size": [1, 2, 3]}, "size", r"got \[1, 2, 3\]"),
        ({"size": 1}, "size", "got 1"),
        ({"size": [1.5, 2]}, "size", "int, got 1.5"),
        ({"network": 3}, "network", "mapping, got 3"),
        ({"network": {"layers": 3}}, "network.layers", "got 3"),
        ({"network": {"layers": ["a"]}}, "network.layers", "int, got 'a'"),
        ({"network": {"filters": [[1]]}}, "network.filters", r"got \[1\]"),
        ({"inner": {"limit": "x"}}, "inner.limit", "int, got 'x'"),
        ({"options": [1]}, "options", r"dict, got \[1\]"),
        ({"schedule": "slow"}, "schedule", "float, got 'slow'"),
        ({"schedule": {"type": "linear", "form": 1}}, "schedule.form", "'from'"),
        ({"schedule": {"type": "linear", "powr": 1}}, "schedule.powr", "'power'"),
        (
            {"schedule": {"type": "linear", "from": 1, "to": "x", "over": 9}},
            "schedule.to",
            "float, got 'x'",
        ),
        (
            {"schedule": {"type": "constant", "from": 1, "to": 0, "over": 9}},
            "schedule",
            "no end",
        ),
        (
            {"schedule": {"type": "linear", "from": 1, "to": None, "over": 9}},
            "schedule",
            "an end and",
        ),
        (
            {
                "schedule": {
                    "type": "cosine",
                    "from": 1,
                    "to": 0,
                    "over": 9,
                    "power": 2,
                }
            },
            "schedule",
            "Only a polynomial",
        ),
    ],
)
def test_mistyped_values_name_the_key(values, path, rest):
    with pytest.raises(config.ConfigError, match=f"'{path}'.*{rest}"):
        sections.build(Config, values)
    error(sections.build, Config, values)


def test_mapping_is_needed():
    assert "must be a mapping" in error(sections.build, Config, [1])
    assert "'inner' must be a mapping" in error(lambda: build(inner="x"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stepps": 1}, "unknown config key 'stepps'; did you mean 'steps'?"),
        ({"Steps": 1}, "unknown config key 'Steps'; did you mean 'steps'?"),
        (
            {"network": {"layer": [1]}},
            "unknown config key 'network.layer'; did you mean 'layers'?",
        ),
        (
            {"inner": {"zzz": 1}},
            "unknown config key 'inner.zzz'; choose from limit, name.",
        ),
    ],
)
def test_unknown_keys_get_a_suggestion(values, message):
    assert error(sections.build, Config, values) == message


def test_keys_that_are_no_text_are_unknown_too():
    assert "unknown config key '5'" in error(sections.build, Config, {5: 1})


def test_checks_of_the_dataclass_are_config_errors():
    assert "steps must be positive, got 0." in error(lambda: build(steps=0))
    text = error(lambda: build(schedule={"type": "linear", "from": 1}))
    assert "'schedule' is a schedule without 'to', 'over'." in text
    text = error(lambda: build(schedule={"type": "constnt", "from": 1}))
    assert "'constnt' is not one of ('constant'" in text
    for kind in (5, ["constant"], None):
        text = error(lambda kind=kind: build(schedule={"type": kind, "from": 1}))
        assert "'schedule.type' must be str" in text
    text = error(lambda: build(schedule={"type": "constant"}))
    assert "'schedule' is a schedule without 'from'." in text
    text = error(lambda: build(schedule={"from": 1}))
    assert "'schedule' is a schedule without 'type'." in text
    text = error(
        lambda: build(schedule={"type": "step", "from": 1, "to": 0, "over": 1})
    )
    assert "'step' is not one of" in text
    assert "unknown network 'huge'" in error(lambda: build(network="huge"))


def test_schedule_that_lacks_keys_names_them_as_they_are_written():
    text = error(lambda: build(schedule={"type": "linear", "from": 1}))
    assert "'to'" in text
    assert "'over'" in text
    text = error(
        lambda: build(schedule={"type": "linear", "from": "x", "to": 0, "over": 1})
    )
    assert "'schedule.from'" in text


def test_keys_are_those_of_a_dataclass():
    for cls in (dict, lambda: None, FULL):
        message = error(sections.build, cls, {"a": 1}, "algorithm")
        assert message.startswith("config key 'algorithm' needs a dataclass")


def test_built_dataclasses_pass_unchanged():
    assert sections.build(Config, FULL) is FULL
    assert build(inner=FULL.inner).inner is FULL.inner


def test_suggestion_for_names():
    assert config.did_you_mean("cheeta", ["cheetah", "ant"]) == (
        "did you mean 'cheetah'?"
    )
    assert config.did_you_mean("x", ["b", "a"]) == "choose from a, b."


def test_plain_values_of_a_config():
    plain = sections.to_dict(FULL)
    assert plain["schedule"] == {"type": "linear", "from": 3e-4, "to": 0, "over": 1e6}
    assert plain["network"]["filters"] == [[16, 8], [32, 4]]
    assert sections.build(Config, plain) == FULL
