"""What the README and the pages behind it show in Python works."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
BLOCKS = [
    pytest.param(name, block, id=f"{name}-{index}")
    for name in ("README.md", "docs/testing.md")
    for index, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    )
    if "import agents\n" in block
]


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_python_runs(name, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, name, "exec"), {"__name__": "__main__"})
