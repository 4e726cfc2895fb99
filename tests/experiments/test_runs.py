"""Building of runs."""

import dataclasses
import datetime
import functools
import shlex

import gymnasium
import pytest

from agents.environments import Environment
from agents.experiments import named, runs
from agents.testing import mocks
from agents.tools import config as config_
from agents.tools import spaces


def test_runs_that_begin_at_the_same_time_get_directories_of_their_own(tmp_path):
    paths = [runs.directory(tmp_path / "logdir", "debug") for _ in range(3)]
    assert sorted(set(paths)) == paths == sorted((tmp_path / "logdir").iterdir())
    for path in paths:
        time, _, name = path.name.partition("-")
        assert name == "debug"
        assert datetime.datetime.strptime(time, "%Y%m%dT%H%M%S")
    again = runs.directory(tmp_path / "logdir", "debug", "seed-1")
    assert again == tmp_path / "logdir" / "seed-1-debug"
    assert not again.exists()
    (tmp_path / "file").touch()
    with pytest.raises(runs.RunError, match=f"cannot write to {tmp_path}/file: "):
        runs.directory(tmp_path / "file", "debug")


@pytest.mark.parametrize(
    ("name", "changes", "backend"),
    [
        ("debug", ["environment.num_workers=1"], "serial"),
        ("cheetah", [], "serial"),
        ("memory_impala", [], "compiled"),
        ("cartpole_compiled", [], "compiled"),
        ("atari_pong", [], "vector"),
    ],
)
def test_environments_that_have_single_ones_can_step_in_this_process(
    name, changes, backend
):
    config = named.load(name, changes)
    changed = runs.in_process(config)
    assert runs.make.choose(changed.environment) == backend
    assert runs.in_halves(changed.environment) == runs.in_halves(config.environment)
    runs.describe(changed)
    there = runs.in_process(config, on_ray=True).environment
    assert there.action_lag == config.environment.action_lag
    assert runs.make.choose(there) == backend


def test_halves_need_an_even_number_of_agents():
    odd = ["environment.num_agents=5", "environment.action_lag=true"]
    with pytest.raises(config_.ConfigError, match="action_lag.* even .* got 5"):
        named.load("debug", odd)
    settings = ["environment.num_agents=64", "environment.backend=workers"]
    environment = named.load("cheetah", settings).environment
    assert runs.in_halves(environment)
    for change in ({"num_agents": 63}, {"num_agents": 16}, {"backend": "auto"}):
        assert not runs.in_halves(dataclasses.replace(environment, **change))
    few = dataclasses.replace(environment, num_agents=2, action_lag=True)
    assert runs.in_halves(few)


@pytest.mark.parametrize("kind", ["impala", "dqn", "ppo"])
def test_only_memories_of_whole_episodes_need_a_limit_of_their_length(kind):
    config = named.load("debug", [f"algorithm.type={kind}"])
    found = [gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)]
    create = functools.partial(mocks.RandomEnvironment, *found)
    endless = Environment(create, "serial", 2)
    config = dataclasses.replace(config, environment=endless)
    if kind == "ppo":
        config = dataclasses.replace(config, algorithm=type(config.algorithm)())
        with pytest.raises(runs.RunError, match=r"which ppo needs .*=unrolls\.$"):
            runs.describe(config)
        unrolls = dataclasses.replace(config.algorithm, memory="unrolls")
        config = dataclasses.replace(config, algorithm=unrolls)
    description = runs.describe(config)
    assert description.max_length is None
    assert config.create_algorithm(description, 2)


class Told(gymnasium.ObservationWrapper):
    """CartPole with a text and a number beside what is observed."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        text, seen = gymnasium.spaces.Text(9), self.env.observation_space
        parts = {
            "mission": text,
            "image": seen,
            "direction": gymnasium.spaces.Discrete(4),
        }
        self.observation_space = gymnasium.spaces.Dict(parts)

    def observation(self, observation):
        return {"mission": "go", "image": observation, "direction": 3}


def test_what_leaves_text_out_is_said():
    config = named.load("debug")
    told = Environment(Told, "serial", 2)
    with pytest.raises(
        spaces.UnsupportedSpaceError, match="Text of part 'mission'"
    ) as e:
        runs.describe(dataclasses.replace(config, environment=told))
    _, _, said = str(e.value).partition("environment.wrappers: ")
    option, assignment = shlex.split(said)
    assert option == "--set"
    wrappers = named.load("debug", [assignment]).environment.wrappers
    told = dataclasses.replace(told, wrappers=wrappers)
    found = runs.describe(dataclasses.replace(config, environment=told))
    assert found.observation_space.keys() == {"direction", "image"}


def test_nothing_is_said_where_no_part_is_an_array():
    config = named.load("debug")
    space = gymnasium.spaces.Dict({"mission": gymnasium.spaces.Text(9)})
    create = functools.partial(
        mocks.RandomEnvironment, space, gymnasium.spaces.Discrete(2)
    )
    environment = Environment(create, "serial", 2)
    with pytest.raises(spaces.UnsupportedSpaceError, match=r"wrappers\.$"):
        runs.describe(dataclasses.replace(config, environment=environment))
