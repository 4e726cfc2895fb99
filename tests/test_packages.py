"""The page about environments of other packages."""

import json
import pathlib
import runpy
import types

ROOT = pathlib.Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "packages.py"


def packages():
    """Names of the script that writes the page."""
    return types.SimpleNamespace(**runpy.run_path(str(PATH), run_name="packages"))


def test_page_is_that_of_the_results():
    script = packages()
    results = json.loads(script.RESULTS.read_text())
    assert script.PAGE.read_text() == script.page(results)
    assert results["rows"].keys() == {case.id for case in script.CASES}


def test_rows_and_notes():
    script = packages()
    case = script.Case("Maze-v0", ("maze[all]",), "seed=1")
    found = {"packages": {"maze": "1.0"}, "option": "", "said": ""}
    found |= {"works": True, "missing": False}
    assert script.line(case, None) == "| `Maze-v0` | | not run |"
    assert script.line(case, found) == "| `Maze-v0` | maze 1.0 | works |"
    assert script.note(case, found) == ""
    found |= {"option": "seed=1", "said": f"error: {'too long ' * 20}"}
    assert script.line(case, found).endswith("| works, with an option |")
    text = script.note(case, found)
    assert "--set 'seed=1'" in text
    assert "error:" not in text
    assert max(map(len, text.splitlines())) <= script.WIDTH
    found |= {"works": False}
    assert "is refused" in script.line(case, found)
    assert "is refused:" in script.note(case, found)
    found |= {"missing": True}
    assert "is not installed" in script.line(case, found)
    assert "could not be installed here:" in script.note(case, found)
