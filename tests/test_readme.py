"""Python code of the README and of the pages behind it works."""

import pathlib
import re

import numpy as np
import pytest
import robots
from gymnasium import spaces as gs

import agents
from agents import environments
from agents.environments import make
from agents.experiments import named
from agents.tools import config_files

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
    name: (ROOT / name).read_text()
    for name in ("README.md", "docs/testing.md", "docs/coming_from.md")
}
BLOCKS = [
    pytest.param(name, block, id=f"{name}-{index}")
    for name, page in PAGES.items()
    for index, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    if "import agents\n" in block
]


def test_image_and_caption_are_a_config():
    """The network of several inputs that the README declares, as an agent."""
    (text,) = (
        block
        for block in re.findall(r"```yaml\n(.*?)```", PAGES["README.md"], re.DOTALL)
        if "streams" in block
    )
    image = gs.Box(0, 255, (64, 64, 3), np.uint8)
    space = gs.Dict({"image": image, "caption": gs.Box(0, 999, (20,), np.int64)})
    values = config_files.parse(text, "README")
    values["algorithm"] |= {"memory": "unrolls", "unroll_length": 4}
    agent = agents.Agent.create(values, space, gs.Discrete(4))
    assert agent.algorithm.preprocessing.space["image"].shape == (32, 32, 4)
    assert agent.act(space.sample()) in range(4)
    agent.observe(1.0, False)
    assert agent.act(space.sample(), independent=True) in range(4)
    shapes = [tuple(x.shape) for x in agent.algorithm.network.policy_variables]
    assert (1000, 32) in shapes  # The embedding knows the number of words.
    assert (3, 3, 4, 32) in shapes  # The first convolution, that of frames.


def test_robot_is_one(tmp_path, monkeypatch):
    """The robot of the README, in a module next to its model; and an example's text."""
    blocks = re.findall(r"```python\n(.*?)```", PAGES["README.md"], re.DOTALL)
    (tmp_path / "my_robot.py").write_text(next(x for x in blocks if "Balance" in x))
    (tmp_path / "cartpole.xml").write_text(robots.MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    batch = make.batch(environments.Environment("my_robot:Balance", num_agents=2))
    assert batch.reset().shape == (2, 17)
    assert (batch.step(np.zeros((2, 1)))[1] > 0.9).all()
    batch.close()
    (varied,) = (x for x in blocks if x.startswith("class VariedCheetah"))
    example = (ROOT / "examples/varied_cheetah.py").read_text()
    lines = [x for x in example.splitlines() if '"""' not in x]
    assert (
        varied.split() == "\n".join(lines[lines.index(varied.split("\n")[0]) :]).split()
    )


def test_file_with_a_config_is_one(tmp_path):
    (text,) = (
        block
        for block in re.findall(r"```yaml\n(.*?)```", PAGES["README.md"], re.DOTALL)
        if "train:" in block
    )
    (tmp_path / "mine.yaml").write_text(text)
    loaded = named.load(str(tmp_path / "mine.yaml"))
    assert loaded.train.steps == 200_000
    assert loaded.algorithm.memory == "unrolls"


@pytest.fixture
def few_steps(monkeypatch):
    """Let runners stop soon, but not before they evaluate and save."""
    run = agents.Runner.run

    def run_shortly(self, *, num_steps=None, **kwargs):
        return run(self, num_steps=num_steps and min(num_steps, 1_200), **kwargs)

    monkeypatch.setattr(agents.Runner, "run", run_shortly)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_python_runs(name, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for text in re.findall(r"```python\n(# \w+\.py\n.*?)```", PAGES[name], re.DOTALL):
        (tmp_path / text.split()[1]).write_text(text)
    exec(compile(block, name, "exec"), {"__name__": "__main__"})
