"""Building of runs."""

import dataclasses

import pytest

from agents.experiments import named, runs
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
