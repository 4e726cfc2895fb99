"""TRPO: its trust region, line search and optimizers."""

import numpy as np
import pytest
from gradient_agents import Forbidding, failing, make, noise, score
from simulated import batch, eagerly, numbers, same

from agents import tools
from agents.algorithms import policy_gradient, trpo
from agents.tools import config as config_


def test_value_optimizer_leaves_a_shared_torso_to_the_policy():
    envs = noise()
    agent = make("trpo", envs, "shared")
    parts = agent._trained
    assert not {id(x) for x in parts["policy"]} & {id(x) for x in parts["value"]}
    assert len(parts["value"]) == 2
    everything = parts["policy"] + parts["value"]
    assert len(everything) == len(agent.network.trainable_variables)


@pytest.mark.quick("unrolls")
@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_accepted_steps_are_within_the_trust_region_and_improve(memory):
    """Though episodes of several policies are among the data."""
    envs = noise(lengths=(3, 5, 2, 7))

    class Checked(trpo.TRPO):
        checked = 0

        def _update_steps(self, data, mask, seed, entropy_coef):
            items = self.prepare(data, mask)
            old = self.policies(items)[1]
            loss = self.policy_loss(items, 0.0)[0]
            metrics = super()._update_steps(data, mask, seed, entropy_coef)
            kl = policy_gradient.mean(old.kl(self.policies(items)[1]), items["mask"])
            assert kl <= 0.01 + 1e-6
            np.testing.assert_allclose(kl, metrics["kl"], atol=1e-6)
            if metrics["step_fraction"] > 0:
                self.checked += 1
                assert kl > 1e-4
                assert self.policy_loss(items, 0.0)[0] < loss
            else:
                assert kl < 1e-7
            return metrics

    agent = make("trpo", envs, cls=Checked, memory=memory, unroll_length=16)
    eagerly(envs, agent, 96)
    assert agent.checked >= 4


def test_update_is_one_function_that_is_traced_once():
    envs = noise()
    agent = make("trpo", envs, memory="unrolls")
    tools.simulate(envs, agent, 24)
    assert agent.steps.numpy() == 96
    assert agent._update.experimental_get_tracing_count() == 1


def test_line_search_survives_a_loss_that_is_no_number():
    """Steps that are not accepted change nothing, so nothing has to be undone."""
    envs = noise()
    agent = make("trpo", envs, cls=failing("trpo"), memory="unrolls", max_failures=9)
    agent.broken.assign(True)
    before = numbers(agent.network.policy_variables)
    eagerly(envs, agent, 8)
    assert same(numbers(agent.network.policy_variables), before)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimizer", {"type": "line_serch"}, "did you mean 'line_search'"),
        ("optimizer", {"type": "adam", "learning_rat": 1}, "optimizer.learning_rat"),
        (
            "optimizer",
            None,
            "'algorithm.optimizer' must be a name or a mapping with a 'type'",
        ),
        (
            "value_optimizer",
            {"type": "multi_step", "optimizer": {"type": "natural_gradient"}},
            "needs 'kl', which is not provided there; ppo, trpo, vpg and a2c",
        ),
    ],
)
def test_impossible_optimizers_are_refused(key, value, message):
    with pytest.raises(config_.ConfigError, match=message):
        trpo.Config(**{key: value})


@pytest.mark.slow
def test_largest_allowed_action_is_learned():
    envs = batch(*(Forbidding() for _ in range(16)))
    options = {"memory": "unrolls", "discount": 0.0, "jit": True, "entropy_coef": 0.0}
    agent = make("trpo", envs, max_length=5, unroll_length=16, **options)
    assert score(envs, agent, 20) < 4.9
    tools.simulate(envs, agent, 16 * 30)
    assert score(envs, agent, 20) >= 4.9
