"""One-line mistakes with the traceback of the user's code."""

import ast
import builtins
import json
import pathlib

import pytest

from agents.tools import config, errors


def test_mistakes_are_one_line():
    assert str(errors.Mistake("a\n b\t c\r\nd")) == "a b c d"
    assert str(errors.Mistake("x\0y \x1b[31m \udce4 ü")) == (
        "x\\x00y \\x1b[31m \\udce4 ü"
    )
    text = str(errors.Mistake("begin " + "x" * 10**6 + " end"))
    assert text.startswith("begin xxx")
    assert text.endswith("xxx end")
    assert len(text) < errors.LONGEST


def test_traceback_stays_below_the_line():
    text = f"it fails:\n badly\n\n{errors.HEADER}\n  File x\nKeyError: 'y'"
    line, *below = str(errors.Mistake(text)).split("\n")
    assert line == "it fails: badly"
    assert below == ["", errors.HEADER, "  File x", "KeyError: 'y'"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module of a source; every one has another name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source):
        name = f"{tmp_path.name}_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


@pytest.mark.parametrize(
    ("source", "reason", "shown"),
    [
        (
            "x = undefined",
            "NameError: name 'undefined' is not defined",
            "x = undefined",
        ),
        ("def f(:", "SyntaxError: invalid syntax", "def f(:"),
        ("raise SystemExit(3)", "it ends the process by SystemExit(3).", "SystemExit"),
        (
            "import missing_x",
            "No module named 'missing_x'; install its package, or start in the",
            "import missing_x",
        ),
        ("raise KeyError", "KeyError: raise KeyError (/", "raise KeyError"),
        (
            "def check():\n    raise AssertionError\ncheck()",
            "AssertionError: raise AssertionError (/",
            "check()",
        ),
        ("raise OSError('a\\n\\nb')", "OSError: a", "raise OSError"),
        ("raise ValueError('no')", "no", "raise ValueError"),
        (
            "class E(BaseException):\n    def __str__(self): return 1 / 0\nraise E",
            "E.",
            "raise E",
        ),
    ],
)
def test_code_of_the_user_is_framed(module, source, reason, shown):
    path = f"{module(source)}:make"
    with pytest.raises(config.ConfigError) as error:
        config.find(path)
    line, empty, header, *rest = str(error.value).split("\n")
    assert line.startswith(f"cannot import {path!r}: {reason}")
    assert (empty, header) == ("", errors.HEADER)
    assert any(shown in x for x in rest)
    assert not any("agents" in x for x in rest)


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (json.loads, {"s": 5}, "the JSON object must be str, bytes or bytearray, not"),
        (json.loads, {"s": "["}, "JSONDecodeError: Expecting value"),
        (errors.Mistake, {}, "missing 1 required positional argument: 'text'"),
    ],
)
def test_wrong_arguments_of_libraries_have_no_traceback(function, arguments, reason):
    with pytest.raises(config.ConfigError) as error:
        config.call(function, arguments, "what")
    assert str(error.value).startswith(f"what: {reason}")
    assert "\n" not in str(error.value)


def test_what_is_no_error_of_the_code_passes():
    for kind in (KeyboardInterrupt, errors.Mistake, IndexError):
        with pytest.raises(kind), errors.framed("x", others=IndexError):
            raise kind("as it is")


def test_failures_of_a_run_are_framed_too():
    frame = errors.framed("x", errors.Failure)
    with pytest.raises(errors.Failure, match="^as it is$"), frame:
        raise errors.Failure("as it is")
    for kind in (errors.Mistake, AssertionError):
        frame = errors.framed("x", errors.Failure)
        with pytest.raises(errors.Failure, match=f"^x: {kind.__name__}: no"), frame:
            raise kind("no\nmore")


BUILT_IN = {x for x in dir(builtins) if isinstance(getattr(builtins, x), type)}
BUILT_IN = {x for x in BUILT_IN if issubclass(getattr(builtins, x), Exception)}


def exceptions(sources):
    """Names of the classes of exceptions in some sources, with those of their bases."""
    classes = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }
    found, size = {}, -1
    while size < len(found):
        size = len(found)
        known = BUILT_IN | found.keys()
        found |= {name: bases for name, bases in classes.items() if bases & known}
    return found


def test_all_errors_have_one_of_two_roots():
    package = pathlib.Path(errors.__file__).parents[1]
    found = exceptions(path.read_text() for path in package.rglob("*.py"))
    assert {"Mistake", "EnvProcessError", "AgentError", "FunctionError"} <= set(found)
    rooted, size = {"Mistake", "Failure"}, 0
    while size < len(rooted):
        size = len(rooted)
        rooted |= {name for name, bases in found.items() if bases & rooted}
    assert set(found) - rooted == set()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError(), "KeyError"),
        (ValueError("a\nb"), "ValueError: a"),
        (ValueError("ValueError: a"), "ValueError: a"),
        (TypeError("in user code:\n\n  File x\n\n    TypeError: b"), "TypeError: b"),
        (
            ValueError("Exception encountered when calling X.\n\n\x1b[1mc"),
            "ValueError: c",
        ),
    ],
)
def test_reason_is_one_line(error, line):
    assert errors.reason(error) == line
