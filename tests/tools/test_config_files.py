"""Configs from files and the command line."""

import dataclasses

import numpy as np
import pytest
from declared import FULL, Config, build, error

from agents.tools import config, config_files, schedules, sections


def test_file_round_trip(tmp_path):
    path = tmp_path / "config.yaml"
    for value in (FULL, Config()):
        config_files.dump(value, path)
        assert sections.build(Config, config_files.load(path)) == value
        assert config_files.load(path) == sections.to_dict(value)
    keys = [line.split(":")[0] for line in path.read_text().splitlines()]
    fields = [field.name for field in dataclasses.fields(Config)]
    assert [key for key in keys if key in fields] == fields


@pytest.mark.parametrize(
    "text",
    [
        *("::1", ":0", "?x", "?a", "-", "- a", "a: b", "a #b", "[a", "{a}", "*a", "&a"),
        *(
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            "'",
            '"',
            "~",
            "null",
            "yes",
            "1e6",
            ".nan",
        ),
        *(
            "",
            " a ",
            "a\tb " + "long " * 40,
            "line\nbreak",
            "\u2028",
            "ü",
            "x:y",
            "a,b",
        ),
        "2026-11-26",
    ],
)
def test_texts_survive_the_file(tmp_path, text):
    value = {"alone": text, "flow": {"list": [text, [text]], "map": {"key": text}}}
    config_files.dump(value, tmp_path / "x.yaml")
    assert config_files.load(tmp_path / "x.yaml") == value


def test_random_texts_survive_the_file(tmp_path):
    random = np.random.default_rng(0)
    letters = [*"abc 19.,:;?!-_#&*|><=%@`'\"\\[]{}~\t\n"]
    for _ in range(200):
        text = "".join(random.choice(letters, random.integers(120)))
        value = {"list": [text, {"key": text}]}
        config_files.dump(value, tmp_path / "x.yaml")
        assert config_files.load(tmp_path / "x.yaml") == value


def test_numbers_of_numpy_survive_and_other_objects_are_refused(tmp_path):
    value = {"a": np.int64(3), "b": [np.float32(0.5)], "c": np.bool_(True)}
    config_files.dump(value, tmp_path / "x.yaml")
    expected = {"a": 3, "b": [0.5], "c": True}
    assert config_files.load(tmp_path / "x.yaml") == expected
    message = error(lambda: config_files.dump({"a": tmp_path}, tmp_path / "y.yaml"))
    assert message.startswith("a config cannot contain PosixPath(")
    assert not (tmp_path / "y.yaml").exists()


def test_what_is_not_a_number_does_not_differ_from_itself():
    old, new = ({"a": {"b": float("nan"), "c": [float("nan"), 1]}} for _ in range(2))
    assert config_files.differences(old, new) == []
    new["a"]["c"][1] = 2
    assert len(config_files.differences(old, new)) == 1


@pytest.mark.parametrize("number", [1e-4, 1e-05, 3e22, 0.1, 1e6, -2.5, 1 / 3, 0.0])
def test_floats_survive_the_file(tmp_path, number):
    config_files.dump({"rate": number}, tmp_path / "x.yaml")
    loaded = config_files.load(tmp_path / "x.yaml")["rate"]
    assert config.convert(float, loaded, "rate") == number


@pytest.mark.parametrize("text", [".inf", "-.inf", ".nan", "1e400", "'inf'", "nan"])
def test_floats_must_be_finite(text):
    value = config_files.parse(f"rate: {text}", "x")["rate"]
    message = error(lambda: build(rate=value))
    kind = "float" if isinstance(value, str) else "a finite float"
    assert message == f"config key 'rate' must be {kind}, got {value!r}."
    assert f"'schedule' must be {kind}, got" in error(lambda: build(schedule=value))
    schedule = {"type": "linear", "from": 1, "to": 0, "over": value}
    assert "'schedule.over'" in error(lambda: build(schedule=schedule))


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
    values = config_files.override(sections.to_dict(Config()), [assignment])
    assert values[key] == expected
    assert type(values[key]) is type(expected)


def test_assignments_reach_into_sections_and_change_a_copy():
    old = sections.to_dict(FULL)
    kept = sections.to_dict(FULL)
    new = config_files.override(
        old, ["network.layers=[1]", "inner.limit=2", "network.layers=[3]"]
    )
    assert old == kept
    assert sections.build(Config, new) == dataclasses.replace(
        FULL,
        network=dataclasses.replace(FULL.network, layers=(3,)),
        inner=dataclasses.replace(FULL.inner, limit=2),
    )


def test_schedules_can_be_assigned():
    text = "schedule={type: linear, from: 3e-4, to: 0, over: 1e6}"
    built = sections.build(
        Config, config_files.override(sections.to_dict(Config()), [text])
    )
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
        (
            "options.a.b=1",
            "unknown config key 'options.a.b'; there is no 'a' yet, so assign it a "
            "mapping.",
        ),
    ],
)
def test_assignments_of_the_wrong_form(assignment, message):
    values = sections.to_dict(Config())
    assert error(config_files.override, values, [assignment]) == message


def test_unknown_last_part_of_an_assignment_is_found_by_build():
    values = config_files.override(sections.to_dict(Config()), ["network.layer=[1]"])
    assert "did you mean 'layers'?" in error(sections.build, Config, values)


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
    message = error(config_files.load, path)
    assert "tag that is not allowed" in message
    assert "bad.yaml" in message
    assert "--set a" in error(
        config_files.override, {"a": 1}, [f"a={text.split(': ')[-1]}"]
    )


@pytest.mark.parametrize(
    "text", ["a: [1", "a: b: c", "a: 1\na: 2", "\tx: 1", "a: 'x", "a: \x01", "*x"]
)
def test_files_that_are_no_yaml_give_one_line(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = error(config_files.load, path)
    assert "bad.yaml" in message
    assert "not valid YAML" in message


def test_files_that_cannot_be_read_give_one_line(tmp_path):
    assert "missing.yaml" in error(config_files.load, tmp_path / "missing.yaml")
    assert "cannot read" in error(config_files.load, tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read" in error(config_files.load, tmp_path / "binary.yaml")


def test_json_is_yaml():
    assert config_files.parse('{"rate": 1e-4, "list": [1, 2]}', "x") == {
        "rate": 1e-4,
        "list": [1, 2],
    }


def test_differences_of_nested_mappings():
    old = {"a": 1, "b": {"c": [1], "d": {"e": None}}, "gone": 2, "same": "x"}
    new = {"a": 2, "b": {"c": [1], "d": {"e": "f"}}, "same": "x", "new": 3}
    assert config_files.differences(old, new) == [
        "a: 1 -> 2",
        "b.d.e: None -> 'f'",
        "gone: 2 -> None",
        "new: None -> 3",
    ]
    assert config_files.differences(old, old) == []


def test_difference_between_a_section_and_a_value():
    assert config_files.differences({"a": {"b": 1}}, {"a": 5}) == ["a: {'b': 1} -> 5"]
