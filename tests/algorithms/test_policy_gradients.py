"""VPG, A2C and TRPO, and what all policy gradients share with PPO."""

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import batch, collected, eagerly, numbers, same

from agents import networks, optimizers, tools
from agents.algorithms import a2c, policy_gradient, ppo, trpo, vpg
from agents.environments import compiled, functional
from agents.scripts import configs, runs
from agents.tools import config as config_
from agents.tools import mock_algorithm

CLASSES = {"a2c": a2c.A2C, "ppo": ppo.PPO, "trpo": trpo.TRPO, "vpg": vpg.VPG}
CONFIGS = {"a2c": a2c.Config, "ppo": ppo.Config, "trpo": trpo.Config, "vpg": vpg.Config}
NETWORKS = {
    "dense": networks.NetworkConfig(layers=(8,)),
    "shared": networks.NetworkConfig(layers=(8,), shared=True),
    "gru": networks.NetworkConfig(layers=({"type": "gru", "units": 4},)),
}
SGD = {"type": "sgd", "learning_rate": 0.1}
TRUST_REGION = {
    "type": "line_search",
    "optimizer": {
        "type": "natural_gradient",
        "cg_max_iterations": 3,
        "subsampling_fraction": 0.5,
    },
}
ADAM = {"type": "adam", "learning_rate": 1e-3}
FEW_STEPS = {
    "ppo": {"epochs": 2},
    "trpo": {
        "optimizer": TRUST_REGION,
        "value_optimizer": {"type": "minibatch", "epochs": 2, "optimizer": ADAM},
    },
}


class Noise(gymnasium.Env):
    """Observes noise; the reward is noise and the first action."""

    observation_space = gs.Box(-np.inf, np.inf, (3,))

    def __init__(self, length=4, discrete=False):
        self.action_space = gs.Discrete(3) if discrete else gs.Box(-1, 1, (2,))
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        reward = self.np_random.normal() + float(np.ravel(action)[0])
        return self._observe(), reward, self._time == self._length, False, {}

    def _observe(self):
        return self.np_random.normal(1, 3, 3).astype(np.float32)


def noise(count=4, lengths=(4, 4, 4, 4), **kwargs):
    return batch(*(Noise(lengths[i % len(lengths)], **kwargs) for i in range(count)))


def make(name, envs, network="dense", cls=None, max_length=8, **changes):
    defaults = {
        "update_every": 4,
        "unroll_length": 8,
        "chunk_length": 4,
        "jit": False,
        "network": NETWORKS[network] if isinstance(network, str) else network,
        **({} if changes.get("jit") else FEW_STEPS.get(name, {})),
    }
    config = CONFIGS[name](**{**defaults, **changes})
    spaces = envs.observation_space, envs.action_space
    return (cls or CLASSES[name])(*spaces, len(envs), max_length, config)


def variables(agent):
    return numbers(agent.network.trainable_variables)


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
            for value in (ratio, old.kl(new), self.kl(items), self.kl(items, True)):
                self.worst.append(np.abs(value * items["mask"]).max())
            return items

    return Watched


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("a2c", "dense"),
        ("trpo", "dense"),
        ("vpg", "dense"),
        ("trpo", "gru"),
        pytest.param("a2c", "gru", marks=pytest.mark.slow),
        pytest.param("vpg", "gru", marks=pytest.mark.slow),
    ],
)
def test_policy_before_the_update_is_the_one_that_acted(name, network, memory):
    """Ratio one and divergence zero, with resets inside of sequences too."""
    lengths = (4,) * 4 if memory == "episodes" else (3, 5, 2, 7)
    envs = noise(lengths=lengths)
    agent = make(name, envs, network, watched(name), memory=memory)
    before = variables(agent)
    eagerly(envs, agent, 24)
    assert len(agent.worst) >= 3 * 4
    assert not same(variables(agent), before)
    assert max(agent.worst) < 1e-5


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


def test_gradient_of_vpg_is_the_policy_gradient():
    """Advantage times the derivative of the log-probability, and no ratio."""
    envs = noise(discrete=True)
    agent = make("vpg", envs, optimizer=SGD)
    items = collected(agent, envs)
    policy = agent.network.policy_variables
    gradients, _, _ = optimizers.optimizer.gradient(
        lambda items: agent.policy_loss(items, 0.0), policy, items
    )
    with tf.GradientTape() as tape:
        logits = agent.network.policy(
            items["observation"], items["state"], items["first"]
        )["logits"]
        chosen = tf.one_hot(items["sample"], 3)
        log_prob = tf.reduce_sum(chosen * tf.nn.log_softmax(logits), -1)
        loss = -tf.reduce_mean(log_prob * items["advantage"])
    expected = tape.gradient(loss, [x.value for x in policy])
    for x, y in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_actor_critic_moves_both_by_the_sum_of_their_losses():
    envs = noise()
    agent = make("a2c", envs, optimizer=SGD, value_coef=0.25, entropy_coef=0.1)
    items = collected(agent, envs)

    def total(items):
        policy, value = agent.policy_loss(items, 0.1), agent.value_loss(items)
        return policy[0] + 0.25 * value[0], {}

    moved = agent.network.policy_variables + agent.network.value_variables
    gradients, _, _ = optimizers.optimizer.gradient(total, moved, items)
    before = numbers(moved)
    agent = make("a2c", envs, optimizer=SGD, value_coef=0.25, entropy_coef=0.1)
    assert same(before, numbers(agent._trained))
    agent.optimizer.step(total, agent._trained, items=items)
    for new, old, gradient in zip(
        numbers(agent._trained), before, gradients, strict=True
    ):
        np.testing.assert_allclose(new, old - 0.1 * gradient, atol=1e-6)


def test_value_optimizer_leaves_a_shared_torso_to_the_policy():
    envs = noise()
    agent = make("trpo", envs, "shared")
    parts = agent._trained
    assert not {id(x) for x in parts["policy"]} & {id(x) for x in parts["value"]}
    assert len(parts["value"]) == 2
    everything = parts["policy"] + parts["value"]
    assert len(everything) == len(agent.network.trainable_variables)


# Trust regions.


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
    agent = make("trpo", envs, memory="unrolls", jit=True)
    tools.simulate(envs, agent, 24)
    assert agent.steps.numpy() == 96
    assert agent._update.experimental_get_tracing_count() == 1


# Failures.


def failing(name):
    """Class whose loss is no number while `broken` is true."""

    class Failing(CLASSES[name]):
        def __init__(self, *args):
            super().__init__(*args)
            self.broken = tf.Variable(False, trainable=False)

        def policy_loss(self, items, entropy_coef):
            loss, metrics = super().policy_loss(items, entropy_coef)
            loss *= tf.where(self.broken, np.nan, 1.0)
            return loss, {**metrics, "policy_loss": loss}

    return Failing


@pytest.mark.parametrize("name", ["a2c", "ppo", "trpo", "vpg"])
def test_failed_updates_are_undone_and_counted(name):
    envs = noise()
    options = {"memory": "unrolls", "max_failures": 2}
    agent = make(name, envs, cls=failing(name), **options)
    eagerly(envs, agent, 8)
    state = tf.train.TrackableView(agent.optimizer).descendants()
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


def test_line_search_survives_a_loss_that_is_no_number():
    """What is not accepted changes nothing, so nothing has to be undone."""
    envs = noise()
    agent = make("trpo", envs, cls=failing("trpo"), memory="unrolls", max_failures=9)
    agent.broken.assign(True)
    before = numbers(agent.network.policy_variables)
    eagerly(envs, agent, 8)
    assert same(numbers(agent.network.policy_variables), before)


# Checkpoints.


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


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimizer", {"type": "line_serch"}, "did you mean 'line_search'"),
        ("optimizer", {"type": "adam", "learning_rat": 1}, "optimizer.learning_rat"),
        ("optimizer", None, "'algorithm.optimizer' must be a mapping with a 'type'"),
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


def test_optimizer_of_ppo_can_be_replaced():
    for name in ("ppo", "vpg", "a2c"):
        envs = noise()
        natural = {"type": "natural_gradient", "max_kl": 1e-3}
        agent = make(name, envs, memory="unrolls", optimizer=natural)
        eagerly(envs, agent, 8)
        assert "cg_residual" in agent.metrics.result()


# On compiled environments, updates included.


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("a2c", "dense"),
        ("trpo", "dense"),
        pytest.param("vpg", "dense", marks=pytest.mark.slow),
        pytest.param("a2c", "gru", marks=pytest.mark.slow),
        pytest.param("trpo", "gru", marks=pytest.mark.slow),
        pytest.param("vpg", "gru", marks=pytest.mark.slow),
    ],
)
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


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    envs.discontinue(np.arange(len(envs)))
    result = tools.simulate(envs, agent, steps, training=False)
    return result["score"].numpy()[result["done"].numpy()].mean()


@pytest.mark.parametrize("name", ["ppo", "trpo"])
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
    """By the preset, in its own environments."""
    config = configs.load(f"cartpole_{name}")
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


class Forbidding(gymnasium.Env):
    """Fails if a forbidden action is chosen; pays for the largest allowed one."""

    observation_space = gs.Dict(
        observation=gs.Box(0, 1, (4,)), action_mask=gs.Box(0, 1, (4,), np.int8)
    )
    action_space = gs.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        if not self._mask[action]:
            raise ValueError(f"Action {action} is forbidden.")
        self._time += 1
        reward = float(action == np.flatnonzero(self._mask)[-1])
        return self._observe(), reward, self._time == 5, False, {}

    def _observe(self):
        self._mask = np.zeros(4, np.int8)
        self._mask[self.np_random.choice(4, 2, replace=False)] = 1
        return {"observation": np.ones(4, np.float32), "action_mask": self._mask}


@pytest.mark.parametrize("name", ["a2c", "ppo", "trpo", "vpg"])
def test_masked_actions_are_never_chosen(name):
    envs = batch(*(Forbidding() for _ in range(8)))
    agent = make(name, envs, memory="unrolls", max_length=5)
    eagerly(envs, agent, 32)
    result = agent.metrics.result()
    assert result["entropy"] <= np.log(2) + 1e-5
    assert np.isfinite(list(result.values())).all()
    assert score(envs, agent, 10) >= 0


def test_largest_allowed_action_is_learned():
    envs = batch(*(Forbidding() for _ in range(16)))
    options = {"memory": "unrolls", "discount": 0.0, "jit": True, "entropy_coef": 0.0}
    agent = make("trpo", envs, max_length=5, unroll_length=16, **options)
    assert score(envs, agent, 20) < 4.9
    tools.simulate(envs, agent, 16 * 30)
    assert score(envs, agent, 20) >= 4.9
