"""YAML of plain values, read in bounded time."""

import json
import time

import pytest

from agents.tools import plain_yaml

BOMBS = {
    "nesting": "[" * 20_000,
    "nested lists": "- " * 20_000,
    "nested keys": "? " * 20_000,
    "nested mappings": "{a: " * 10_000,
    "aliases": "\n".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]"
        for n in range(30)
    ),
    "merges": "\n".join(
        f"a{n}: &a{n} {{{'<<: [' + ', '.join([f'*a{n - 1}'] * 9) + ']' if n else 'x: 1'}}}"
        for n in range(30)
    ),
    "itself": "&a [*a]",
    "values": "[" + "1, " * 15_000 + "]",
    "length": "x" * 10**6,
    "digits": "9" * 40_000,
    "hexadecimal": "0x" + "f" * 40_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_time(name):
    start = time.process_time()
    with pytest.raises(plain_yaml.PlainError) as error:
        plain_yaml.read(BOMBS[name])
    assert time.process_time() - start < 2
    assert str(error.value).startswith(
        ("nests", "stands for", "is longer", "has an int")
    )


def test_what_is_allowed_is_read():
    depth = plain_yaml.DEEPEST
    assert str(plain_yaml.read("[" * depth + "]" * depth)).count("[") == depth
    assert len(plain_yaml.read("[" + "1," * (plain_yaml.MOST - 1) + "]")) == 9_999
    read = plain_yaml.read("a: &x {b: [1]}\nc: *x\nd: {<<: *x, e: 2}")
    assert read == {"a": {"b": [1]}, "c": {"b": [1]}, "d": {"b": [1], "e": 2}}
    assert read["a"] is not read["c"]
    assert read["a"]["b"] is not read["d"]["b"]
    assert type(read) is dict
    limits = f"[{2**63 - 1}, {-(2**63)}, 0x1F, 1_000, 1e400]"
    assert plain_yaml.read(limits) == [2**63 - 1, -(2**63), 31, 1000, float("inf")]


def test_characters_that_json_writes_as_pairs_are_read():
    value = {"a\U0001f600": "b\U0001f600\u00fc"}
    assert plain_yaml.read(json.dumps(value)) == value


def test_dates_are_text():
    for date in ("2001-01-01", "2001-99-99", "2001-01-01 25:61:00"):
        assert plain_yaml.read(f"a: {date}") == {"a": date}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!set {a}", "has a tag that is not allowed: .*set"),
        ("!!binary aGk=", "has a tag that is not allowed: .*binary"),
        ("!!python/object/apply:os.getcwd []", "has a tag that is not allowed"),
        ("!!int abc", "is not valid YAML: ValueError: invalid literal"),
        ("!!int ''", "is not valid YAML"),
        ("!!bool abc", "is not valid YAML"),
        ("{<<: 5}", "is not valid YAML in line 1: expected a mapping"),
        ("a: 1\na: 2", "is not valid YAML in line 2: found duplicate key"),
        ("*missing", "is not valid YAML in line 1: found undefined alias"),
        ("{1: 2}", "has the key 1, which is not text; quote it"),
        ("x: [{null: 2}]", "has the key None, which is not text"),
        ("9223372036854775808", "has an integer of more than 64 bits"),
        ('"\\0"', r"has text with the character '\\x00'"),
        ('x: ["\\ud800"]', r"has text with the character '\\ud800'"),
        ('{"\\x1b": 1}', r"has text with the character '\\x1b'"),
    ],
)
def test_what_is_not_plain_is_refused(text, message):
    with pytest.raises(plain_yaml.PlainError, match=f"^{message}"):
        plain_yaml.read(text)
