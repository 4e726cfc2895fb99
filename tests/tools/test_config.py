"""Configs from files and the command line."""

import dataclasses
from typing import Any

import pytest

from agents.tools import config, schedules


@dataclasses.dataclass(frozen=True)
class Network:
    layers: tuple[int, ...] = (64, 64)
    filters: tuple[tuple[int, int], ...] = ()
    activation: str = "relu"

    @classmethod
    def short(cls, name):
        if name != "big":
            raise config.ConfigError(f"unknown network {name!r}.")
        return cls(layers=(512,))


@dataclasses.dataclass(frozen=True)
class Inner:
    name: str = "inner"
    limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 100
    rate: float = 1e-3
    schedule: float | schedules.Schedule | None = 0.5
    jit: bool = False
    name: str = "default"
    size: tuple[int, float] = (1, 2.0)
    network: Network = Network()
    inner: Inner | None = None
    options: dict = dataclasses.field(default_factory=dict)
    anything: Any = None

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}.")


FULL = Config(
    steps=7,
    rate=3e-5,
    schedule=schedules.Schedule("linear", 3e-4, 0.0, 1e6),
    jit=True,
    name="yes: no # 'quoted' \"twice\" ü",
    size=(3, 0.25),
    network=Network((8,), ((16, 8), (32, 4)), "1e3"),
    inner=Inner("null", 10**12),
    options={"a": {"b": [1, "x", None, 1e-9]}, "5": True},
    anything=[1, {"k": "v"}],
)


def error(function, *args):
    """Text of the ConfigError, which must be one line."""
    with pytest.raises(config.ConfigError) as caught:
        function(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


def build(**values):
    return config.build(Config, values)


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
    built = config.build(Config, values)
    assert built == expected
    for field in dataclasses.fields(Config):
        ours, theirs = (getattr(x, field.name) for x in (built, expected))
        assert type(ours) is type(theirs)


def test_element_types_are_converted_too():
    built = build(size=[5.0, 6], network={"layers": [8.0]})
    assert [type(x) for x in built.size] == [int, float]
    assert type(built.network.layers[0]) is int


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
        config.build(Config, values)
    error(config.build, Config, values)


def test_mapping_is_needed():
    assert "must be a mapping" in error(config.build, Config, [1])
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
            "unknown config key 'inner.zzz'; known are limit, name.",
        ),
    ],
)
def test_unknown_keys_get_a_suggestion(values, message):
    assert error(config.build, Config, values) == message


def test_keys_that_are_no_text_are_unknown_too():
    assert "unknown config key '5'" in error(config.build, Config, {5: 1})


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
        message = error(config.build, cls, {"a": 1}, "algorithm")
        assert message.startswith("config key 'algorithm' needs a dataclass")


def test_built_dataclasses_pass_unchanged():
    assert config.build(Config, FULL) is FULL
    assert build(inner=FULL.inner).inner is FULL.inner


def test_suggestion_for_names():
    assert config.did_you_mean("cheeta", ["cheetah", "ant"]) == (
        "did you mean 'cheetah'?"
    )
    assert config.did_you_mean("x", ["b", "a"]) == "known are a, b."


def test_file_round_trip(tmp_path):
    path = tmp_path / "config.yaml"
    for value in (FULL, Config()):
        config.dump(value, path)
        assert config.build(Config, config.load(path)) == value
        assert config.load(path) == config.to_dict(value)
    keys = [line.split(":")[0] for line in path.read_text().splitlines()]
    fields = [field.name for field in dataclasses.fields(Config)]
    assert [key for key in keys if key in fields] == fields


@pytest.mark.parametrize("number", [1e-4, 1e-05, 3e22, 0.1, 1e6, -2.5, 1 / 3, 0.0])
def test_floats_survive_the_file(tmp_path, number):
    config.dump({"rate": number}, tmp_path / "x.yaml")
    loaded = config.load(tmp_path / "x.yaml")["rate"]
    assert config.convert(float, loaded, "rate") == number


@pytest.mark.parametrize("text", [".inf", "-.inf", ".nan", "1e400", "'inf'", "nan"])
def test_floats_must_be_finite(text):
    value = config.parse(f"rate: {text}", "x")["rate"]
    message = error(lambda: build(rate=value))
    kind = "float" if isinstance(value, str) else "a finite float"
    assert message == f"config key 'rate' must be {kind}, got {value!r}."
    assert f"'schedule' must be {kind}, got" in error(lambda: build(schedule=value))
    schedule = {"type": "linear", "from": 1, "to": 0, "over": value}
    assert "'schedule.over'" in error(lambda: build(schedule=schedule))


def test_plain_values_of_a_config():
    plain = config.to_dict(FULL)
    assert plain["schedule"] == {"type": "linear", "from": 3e-4, "to": 0, "over": 1e6}
    assert plain["network"]["filters"] == [[16, 8], [32, 4]]
    assert config.build(Config, plain) == FULL


@pytest.mark.parametrize(
    ("assignment", "key", "expected"),
    [
        ("steps=5", "steps", 5),
        ("rate=1e-4", "rate", 1e-4),
        ("name=x=y", "name", "x=y"),
        ("schedule=null", "schedule", None),
        ("jit=true", "jit", True),
        ("network=big", "network", "big"),
        ("size=[1, 2]", "size", [1, 2]),
        ("name='5'", "name", "5"),
        ("name=", "name", None),
    ],
)
def test_assignments_are_yaml(assignment, key, expected):
    values = config.override(config.to_dict(Config()), [assignment])
    assert values[key] == expected
    assert type(values[key]) is type(expected)


def test_assignments_reach_into_sections_and_change_a_copy():
    old = config.to_dict(FULL)
    kept = config.to_dict(FULL)
    new = config.override(
        old, ["network.layers=[1]", "inner.limit=2", "network.layers=[3]"]
    )
    assert old == kept
    assert config.build(Config, new) == dataclasses.replace(
        FULL,
        network=dataclasses.replace(FULL.network, layers=(3,)),
        inner=dataclasses.replace(FULL.inner, limit=2),
    )


def test_schedules_can_be_assigned():
    text = "schedule={type: linear, from: 3e-4, to: 0, over: 1e6}"
    built = config.build(Config, config.override(config.to_dict(Config()), [text]))
    assert built.schedule == schedules.Schedule("linear", 3e-4, 0.0, 1e6)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("steps", "--set takes key=value, got 'steps'."),
        ("=5", "--set takes key=value, got '=5'."),
        (
            "netwrk.layers=[1]",
            "unknown config key 'netwrk.layers'; did you mean 'network'?",
        ),
        ("steps.more=1", "unknown config key 'steps.more'; 'steps' is 100."),
        ("inner.limit=1", "unknown config key 'inner.limit'; 'inner' is None."),
    ],
)
def test_assignments_of_the_wrong_form(assignment, message):
    values = config.to_dict(Config())
    assert error(config.override, values, [assignment]) == message


def test_unknown_last_part_of_an_assignment_is_found_by_build():
    values = config.override(config.to_dict(Config()), ["network.layer=[1]"])
    assert "did you mean 'layers'?" in error(config.build, Config, values)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['echo unsafe']",
        "!!python/name:os.system",
        "a: !!python/object/new:pathlib.Path [x]",
        "a: !mine 5",
    ],
)
def test_tags_are_refused(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = error(config.load, path)
    assert "tag that is not allowed" in message
    assert "bad.yaml" in message
    assert "--set a" in error(config.override, {"a": 1}, [f"a={text.split(': ')[-1]}"])


@pytest.mark.parametrize(
    "text", ["a: [1", "a: b: c", "a: 1\na: 2", "\tx: 1", "a: 'x", "a: \x01", "*x"]
)
def test_files_that_are_no_yaml_give_one_line(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = error(config.load, path)
    assert "bad.yaml" in message
    assert "not valid YAML" in message


def test_files_that_cannot_be_read_give_one_line(tmp_path):
    assert "missing.yaml" in error(config.load, tmp_path / "missing.yaml")
    assert "cannot read" in error(config.load, tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read" in error(config.load, tmp_path / "binary.yaml")


def test_json_is_yaml():
    assert config.parse('{"rate": 1e-4, "list": [1, 2]}', "x") == {
        "rate": 1e-4,
        "list": [1, 2],
    }


def test_differences_of_nested_mappings():
    old = {"a": 1, "b": {"c": [1], "d": {"e": None}}, "gone": 2, "same": "x"}
    new = {"a": 2, "b": {"c": [1], "d": {"e": "f"}}, "same": "x", "new": 3}
    assert config.differences(old, new) == [
        "a: 1 -> 2",
        "b.d.e: None -> 'f'",
        "gone: 2 -> None",
        "new: None -> 3",
    ]
    assert config.differences(old, old) == []


def test_difference_between_a_section_and_a_value():
    assert config.differences({"a": {"b": 1}}, {"a": 5}) == ["a: {'b': 1} -> 5"]
