"""Code and commands of the README and of the pages behind it work."""

import argparse
import importlib
import pathlib
import re
import runpy
import shlex
import sys

import numpy as np
import pytest
import robots
from gymnasium import spaces as gs

import agents
from agents import distributed, environments
from agents.environments import make
from agents.experiments import config as experiment
from agents.experiments import named
from agents.scripts import cli
from agents.tools import config_files

ROOT = pathlib.Path(__file__).parents[1]
DOCS = [x for x in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in x.parts]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS)
}


FENCED = re.compile(r"^```(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [(name, *x) for name, page in PAGES.items() for x in FENCED.findall(page)]


def blocks(*languages):
    """Pages and texts of all code in some languages."""
    return [(name, text) for name, language, text in BLOCKS if language in languages]


SLOW = ("RayExecutor", '"natural_gradient"', '"lstm"', "num_episodes=1000")
"""Words of code that takes long."""


def params(pairs):
    """Parameters of tests, named by their pages; some take long."""
    counts = dict.fromkeys(PAGES, 0)
    found = []
    for name, value in pairs:
        marks = [pytest.mark.slow] if any(x in value for x in SLOW) else []
        found.append(
            pytest.param(name, value, id=f"{name}-{counts[name]}", marks=marks)
        )
        counts[name] += 1
    return found


def the(language, *words):
    """The only block of a language that contains some words."""
    (found,) = (x for _, x in blocks(language) if all(word in x for word in words))
    return found


def modules(name):
    """Modules that a page shows, by their file names."""
    shown = [x for page, x in blocks("python") if page == name]
    return {x.split()[1]: x for x in shown if re.match(r"# \w+\.py\n", x)}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Function that makes a working directory with the modules of a page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def function(name):
        for file, text in modules(name).items():
            (tmp_path / file).write_text(text)
            monkeypatch.delitem(sys.modules, file.removesuffix(".py"), raising=False)
        importlib.invalidate_caches()
        return tmp_path

    return function


def test_image_and_caption_are_a_config():
    """The network of several inputs that a page declares, as an agent."""
    image = gs.Box(0, 255, (64, 64, 3), np.uint8)
    space = gs.Dict({"image": image, "caption": gs.Box(0, 999, (20,), np.int64)})
    values = config_files.parse(the("yaml", "streams"), "page")
    values["algorithm"] |= {"memory": "unrolls", "unroll_length": 4}
    agent = agents.Agent.create(values, space, gs.Discrete(4))
    assert agent.algorithm.preprocessing.space["image"].shape == (32, 32, 4)
    assert agent.act(space.sample()) in range(4)
    agent.observe(1.0, False)
    assert agent.act(space.sample(), independent=True) in range(4)
    shapes = [tuple(x.shape) for x in agent.algorithm.network.policy_variables]
    assert (1000, 32) in shapes  # The embedding knows the number of words.
    assert (3, 3, 4, 32) in shapes  # The first convolution, that of frames.


def test_robot_is_one(directory):
    """The robot of a page, in a module next to its model; and an example's text."""
    path = directory("docs/environments_and_backends.md")
    (path / "cartpole.xml").write_text(robots.MODEL)
    batch = make.batch(environments.Environment("my_robot:Balance", num_agents=2))
    assert batch.reset().shape == (2, 17)
    assert (batch.step(np.zeros((2, 1)))[1] > 0.9).all()
    batch.close()
    example = (ROOT / "examples/varied_cheetah.py").read_text()
    code = re.sub(r'""".*?"""', "", example, flags=re.DOTALL)
    assert the("python", "class VariedCheetah").split() == code.split()


def test_environment_is_one(directory):
    """The environment of a page keeps the rules, and so does its functional one."""
    directory("docs/own_environment.md")
    one = importlib.import_module("my_module").make_env
    three = environments.Environment(one, "serial", num_agents=3)
    agents.testing.check_batch_env(lambda: make.batch(three), reference=one)
    directory("docs/environments_and_backends.md")
    walk = environments.Environment("my_walk:Walk", num_agents=2)
    assert make.choose(walk) == "compiled"
    pictures = make.functional(walk).render(np.float32([[-1.0], [6.0]])).numpy()
    assert pictures.shape == (2, 3, 13, 3)
    assert (pictures[:, 0, :, 0] == 255).argmax(1).tolist() == [5, 12]


def test_file_with_a_config_is_one(tmp_path):
    (tmp_path / "mine.yaml").write_text(the("yaml", "train:"))
    loaded = named.load(str(tmp_path / "mine.yaml"))
    assert loaded.train.steps == 200_000
    assert loaded.algorithm.memory == "unrolls"


@pytest.mark.parametrize(("name", "text"), params(blocks("yaml")))
def test_yaml_is_part_of_a_config(name, text):
    values = config_files.parse(text, name)
    if any("." in key for key in values):
        return  # A space of `tune`, which its tests load.
    environment = {"id": "CartPole-v1", **values.get("environment", {})}
    others = {"name": "page", **experiment.SECTIONS}
    experiment.resolve({**others, **values, "environment": environment})


@pytest.fixture
def few_steps(monkeypatch):
    """Let runners and executors stop soon, but not before they evaluate and save."""
    run, execute = agents.Runner.run, distributed.RayExecutor.run

    def run_shortly(self, *, num_steps=None, **kwargs):
        return run(self, num_steps=num_steps and min(num_steps, 1_200), **kwargs)

    def execute_shortly(self, steps):
        return execute(self, min(steps, 2_000))

    monkeypatch.setattr(agents.Runner, "run", run_shortly)
    monkeypatch.setattr(distributed.RayExecutor, "run", execute_shortly)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(("name", "block"), params(blocks("python")))
def test_python_runs(name, block, directory):
    directory(name)
    exec(compile(block, name, "exec"), {"__name__": "__main__"})


def commands():
    """Pages and arguments of all calls of the `agents` command."""
    for name, text in blocks("", "bash", "console", "sh"):
        for line in text.replace("\\\n", "").splitlines():
            program, *arguments = shlex.split(line, comments=True) or [""]
            if program.removeprefix(".venv/bin/") == "agents":
                yield name, arguments


class Parsed(Exception):
    """Arguments of a command that is not to run."""


@pytest.mark.parametrize(("name", "arguments"), params(commands()))
def test_commands_are_valid(name, arguments, directory, monkeypatch):
    """Options exist, and so do configs with all that is set."""
    directory(name)
    parse = argparse.ArgumentParser.parse_args

    def stop(*args, **kwargs):
        raise Parsed(parse(*args, **kwargs))

    with monkeypatch.context() as context:
        context.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(Parsed) as caught:
            cli.main(arguments)
    (parsed,) = caught.value.args
    if arguments[0] in ("train", "tune", "benchmark"):
        named.load(parsed.config, parsed.set)


def test_targets_of_make_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = "\n".join(text for _, _, text in BLOCKS)
    called = re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE)
    called += re.findall(r"`make ([a-z-]+)", "".join(PAGES.values()))
    assert {"train", "test", "docs"} <= set(called) <= set(targets)


def test_links_lead_to_files():
    """Sphinx checks those of the site; these are shown elsewhere as well."""
    for name, page in PAGES.items():
        text = FENCED.sub("", page)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (
                target.startswith("api/")
                or (ROOT / name).parent.joinpath(target).exists()
            ), f"{name}: {target}"


def test_figure_is_that_of_its_script():
    script = runpy.run_path(str(ROOT / "docs/figures/data_path.py"))
    assert script["FILE"].read_text() == script["draw"]()
