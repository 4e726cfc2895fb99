"""Building of runs."""

import dataclasses
import functools

import gymnasium
import pytest

from agents.environments import Environment
from agents.experiments import named, runs
from agents.testing import mocks
from agents.tools import config as config_


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
    spaces = [gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)]
    create = functools.partial(mocks.RandomEnvironment, *spaces)
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
