"""The examples run as they are, and learn."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


SLOW = {"ppo_evolutionary"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in EXAMPLES
    ],
    ids=lambda path: path.stem,
)
def test_example_solves_cartpole(path):
    result = subprocess.run(
        [sys.executable, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    scores = [int(x) for x in re.findall(r"mean return (\d+)", result.stdout)]
    assert scores, result.stdout
    assert max(scores) >= 475


def test_new_algorithm_takes_less_than_sixty_lines():
    text = (ROOT / "examples/reinforce.py").read_text()
    lines = text.partition("\nclass ")[2].partition("\n\n\ndef main")[0].splitlines()
    assert len(lines) < 60
