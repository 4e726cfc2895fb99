"""VPG, A2C, TRPO and PPO: data of the acting policy, failures, masks, learning."""

import gradient_agents
import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gradient_agents import CLASSES, Forbidding, failing, make, noise, score, variables
from gymnasium import spaces as gs
from simulated import batch, collected, eagerly, numbers, same

from agents import networks, tools
from agents.algorithms import policy_gradient
from agents.environments import compiled, functional
from agents.experiments import named, runs
from agents.testing import mock_algorithm

# What is learned from.


def watched(name):
    """Class that compares, as each update begins, its policy to the one that acted."""

    class Watched(CLASSES[name]):
        def __init__(self, *args):
            super().__init__(*args)
            self.worst = []

        def prepare(self, data, mask):
            items = super().prepare(data, mask)
            old, new = self.policies(items)
            ratio = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
            values = ratio, old.kl(new), self.kl(items), self.kl(items, True)
            self.worst.append([np.abs(x * items["mask"]).max() for x in values])
            return items

    return Watched


@pytest.mark.quick("a2c-dense-unrolls", "trpo-dense-unrolls", "a2c-gru-episodes")
@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
@pytest.mark.parametrize("network", ["dense", "gru"])
@pytest.mark.parametrize("name", ["a2c", "trpo", "vpg"])
def test_policy_before_the_update_is_the_one_that_acted(name, network, memory):
    """Ratio one and divergence zero, with resets inside of sequences too."""
    lengths = (4,) * 4 if memory == "episodes" else (3, 5, 2, 7)
    envs = noise(lengths=lengths)
    agent = make(name, envs, network, watched(name), memory=memory)
    before = variables(agent)
    eagerly(envs, agent, 24)
    assert len(agent.worst) >= 3
    assert not same(variables(agent), before)
    assert np.max(agent.worst) < 1e-5


@pytest.mark.quick("a2c", "trpo")
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_divergence_is_zero_before_an_update_even_if_older_policies_acted(name):
    envs = noise(lengths=(3, 5, 2, 7))
    agent = make(name, envs, "dense", watched(name), memory="episodes")
    eagerly(envs, agent, 40)
    ratio, acting, divergence, local = np.max(agent.worst, axis=0)
    assert ratio > 1e-3
    assert acting > 1e-5
    assert max(divergence, local) < 1e-6


@pytest.mark.quick("a2c-dense", "a2c-gru", "a2c-shared", "trpo-shared", "vpg-dense")
@pytest.mark.parametrize("network", ["dense", "shared", "gru"])
@pytest.mark.parametrize("name", ["a2c", "trpo", "vpg"])
def test_metrics_are_finite_and_declared(name, network):
    envs = noise()
    agent = make(name, envs, network, memory="unrolls")
    eagerly(envs, agent, 16)
    result = agent.metrics.result()
    assert set(result) == set(agent.metrics.names) - {"failed_updates"}
    assert np.isfinite(list(result.values())).all()
    wanted = {"policy_loss", "value_loss", "entropy", "kl", "explained_variance"}
    assert wanted <= set(result)


# Failures.


@pytest.mark.quick("ppo")
@pytest.mark.parametrize("name", ["a2c", "ppo", "trpo", "vpg"])
def test_failed_updates_are_undone_and_counted(name):
    envs = noise()
    options = {"memory": "unrolls", "max_failures": 2}
    agent = make(name, envs, cls=failing(name), **options)
    eagerly(envs, agent, 8)
    state = tf.train.TrackableView(agent.optimizer.optimizer).descendants()
    state = [x for x in state if isinstance(x, tf.Variable | keras.Variable)]
    before, slots = variables(agent), numbers(state)
    agent.metrics.reset()
    agent.broken.assign(True)
    eagerly(envs, agent, 16)
    assert same(variables(agent), before)
    assert same(numbers(state), slots)
    assert agent.metrics.result() == {"failed_updates": 1.0}
    agent.broken.assign(False)
    eagerly(envs, agent, 8)
    assert not same(variables(agent), before)
    assert np.isfinite(np.concatenate([x.ravel() for x in variables(agent)])).all()
    assert agent.metrics.result()["failed_updates"] == pytest.approx(2 / 3)
    agent.broken.assign(True)
    eagerly(envs, agent, 16)
    with pytest.raises(tf.errors.InvalidArgumentError, match="policy_loss is not fin"):
        eagerly(envs, agent, 8)


@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_data_that_overflow_are_one_failure(name):
    class Overflowing(gradient_agents.Noise):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            self.count = getattr(self, "count", 0) + 1
            return observation, 1e30 if self.count == 10 else reward, *rest

    envs = batch(*(Overflowing(4) for _ in range(4)))
    options = {"memory": "unrolls", "normalize_rewards": "none", "max_failures": 1}
    agent = make(name, envs, **options)
    eagerly(envs, agent, 32)
    result = agent.metrics.result()
    assert result["failed_updates"] == pytest.approx(1 / 4)
    assert set(result) == set(agent.metrics.names)
    assert np.isfinite(list(result.values())).all()


# Checkpoints.


@pytest.mark.quick(
    "a2c-dense",
    "trpo-dense",
    "a2c-shared",
    "a2c-gru",
    "ppo-shared",
    "ppo-gru",
    "vpg-dense",
)
@pytest.mark.parametrize("network", ["dense", "shared", "gru"])
@pytest.mark.parametrize("name", ["a2c", "ppo", "trpo", "vpg"])
def test_checkpoints_hold_everything_that_is_learned(name, network, tmp_path):
    envs = noise()
    agent = make(name, envs, network, memory="unrolls")
    eagerly(envs, agent, 8)
    path = tf.train.Checkpoint(**agent.persistent()).write(str(tmp_path / "x"))
    other = make(name, noise(), network, memory="unrolls")
    for variable in other.network.variables:
        variable.assign(variable.value + 1)
    tf.train.Checkpoint(**other.persistent()).read(path).assert_consumed()
    assert same(variables(agent), variables(other))
    left, right = (
        [
            x
            for x in tf.train.TrackableView(y.optimizer).descendants()
            if isinstance(x, tf.Variable | keras.Variable)
        ]
        for y in (agent, other)
    )
    assert same(numbers(left), numbers(right))


# Configs.


def test_optimizer_of_ppo_can_be_replaced():
    for name in ("ppo", "vpg", "a2c"):
        envs = noise()
        natural = {"type": "natural_gradient", "max_kl": 1e-3}
        agent = make(name, envs, memory="unrolls", optimizer=natural)
        eagerly(envs, agent, 8)
        assert "cg_residual" in agent.metrics.result()


# On compiled environments, updates included.


@pytest.mark.quick("dense-a2c")
@pytest.mark.parametrize("name", ["a2c", "trpo", "vpg"])
@pytest.mark.parametrize("network", ["dense", "gru"])
def test_everything_compiles_to_one_program(name, network):
    envs = compiled.Compiled(functional.CartPole(), 4)
    agent = make(name, envs, network, memory="unrolls", max_length=500, jit=None)
    before = variables(agent)
    tools.simulate(envs, agent, 16)
    result = agent.metrics.result()
    assert np.isfinite(list(result.values())).all()
    assert not same(variables(agent), before)
    assert agent.steps.numpy() == 64


# Learning.


class Parts(gymnasium.Env):
    """Pays for a number, a flag and a choice that equal what is seen."""

    observation_space = gs.Box(-1, 1, (4,))
    action_space = gs.Dict(
        choice=gs.Discrete(3),
        flags=gs.MultiBinary(2),
        number=gs.Box(-1, 1, (1,)),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        choice = min(int((self._seen[0] + 1) * 1.5), 2)
        score = float(action["choice"] == choice)
        score += np.mean(action["flags"] == (self._seen[1:3] > 0))
        score += 1 - min(abs(action["number"][0] - 0.8 * self._seen[3]), 1)
        self._time += 1
        return self._observe(), score / 3, self._time == 10, False, {}

    def _observe(self):
        self._seen = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self._seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", pytest.param("trpo", marks=pytest.mark.slow)])
def test_actions_of_several_parts_are_learned(name):
    """At least 95% of the optimum, which is 10."""
    envs = batch(*(Parts() for _ in range(32)))
    assert score(envs, mock_algorithm.MockAlgorithm(envs.action_space), 50) < 6.5
    options = {
        "memory": "unrolls",
        "unroll_length": 32,
        "discount": 0.5,
        "gae_lambda": 0.5,
        "normalize_observations": False,
    }
    network = networks.NetworkConfig(
        layers=(64, 64), activation="tanh", mean_activation="linear"
    )
    if name == "ppo":
        options |= {
            "objective": "clip",
            "epochs": 10,
            "minibatch_size": 256,
            "learning_rate": 1e-3,
            "value_learning_rate": 1e-3,
        }
    else:
        options["optimizer"] = {
            "type": "line_search",
            "optimizer": {"type": "natural_gradient", "max_kl": 0.05},
        }
    agent = make(name, envs, network, max_length=10, jit=True, **options)
    assert score(envs, agent, 50) < 7
    tools.simulate(envs, agent, 32 * 100)
    assert score(envs, agent, 50) >= 9.5


@pytest.mark.parametrize(
    ("name", "steps"), [("trpo", 40_000), ("vpg", 80_000), ("a2c", 100_000)]
)
def test_cartpole_is_solved(name, steps):
    """By the preset; the environments step here, since other tests use the processors."""
    config = runs.in_process(named.load(f"cartpole_{name}"))
    envs = runs.environments(config)
    try:
        chance = mock_algorithm.MockAlgorithm(envs.action_space)
        assert score(envs, chance, 500) < 100
        agent = runs.algorithm(config, runs.describe(config))
        envs.discontinue(np.arange(len(envs)))
        tools.simulate(envs, agent, steps // len(envs) // 5 * 5)
        assert score(envs, agent, 500) >= 475
    finally:
        envs.close()


# Masks.


@pytest.mark.quick("ppo", "a2c")
@pytest.mark.parametrize("name", ["a2c", "ppo", "trpo", "vpg"])
def test_masked_actions_are_never_chosen(name):
    envs = batch(*(Forbidding() for _ in range(8)))
    agent = make(name, envs, memory="unrolls", max_length=5)
    eagerly(envs, agent, 32)
    result = agent.metrics.result()
    assert result["entropy"] <= np.log(2) + 1e-5
    assert np.isfinite(list(result.values())).all()
    assert score(envs, agent, 10) >= 0


def test_means_over_masks_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"value \(4, 5\), mask \(4, 5, 1\)"):
        policy_gradient.mean(tf.ones([4, 5]), tf.ones([4, 5, 1]))
    assert policy_gradient.mean(tf.ones([4, 5]), tf.ones([4, 5])) == 1


@pytest.mark.parametrize("name", ["a2c", "vpg", "trpo"])
def test_policy_loss_by_definition(name):

    envs = noise(discrete=True)
    agent = make(name, envs, memory="unrolls")
    items = collected(agent, envs)
    for i, x in enumerate(agent.network.trainable_variables):
        x.assign(x.value + tf.random.stateless_normal(x.shape, [0, i]))
    _, new = agent.policies(items)
    old = agent.network.head.distribution(items["parameters"])
    weight = new.log_prob(items["sample"])
    if name == "trpo":
        weight = tf.exp(weight - old.log_prob(items["sample"]))
        assert np.abs(weight - 1).max() > 0.1
    entropy = tf.reduce_mean(new.entropy())
    gain = tf.reduce_mean(weight * items["advantage"])
    loss, metrics = agent.policy_loss(items, 0.7)
    np.testing.assert_allclose(loss, -gain - 0.7 * entropy, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
