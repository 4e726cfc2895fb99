"""IMPALA: recomputation, lag and loss, and that it learns."""

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import Endless, batch, collected, eagerly, numbers, same, without_graphs

from agents import networks, optimizers, tools
from agents.algorithms import a2c, impala
from agents.environments import compiled, functional
from agents.experiments import named, runs
from agents.testing import mock_algorithm
from agents.tools import checkpoint, loop

NETWORKS = {
    "dense": networks.NetworkConfig(layers=(8,)),
    "shared": networks.NetworkConfig(layers=(8,), shared=True),
    "gru": networks.NetworkConfig(layers=(8, {"type": "gru", "units": 6})),
    "lstm": networks.NetworkConfig(layers=({"type": "lstm", "units": 6},)),
    "both": networks.NetworkConfig(
        layers=(8, {"type": "lstm", "units": 6}), shared=True
    ),
}


class Noise(gymnasium.Env):
    """Observes noise; episodes have these lengths and ends in turn.

    Ends are `terminated`, `truncated` or `both`; the reward is noise and the action.
    """

    observation_space = gs.Box(-np.inf, np.inf, (3,))

    def __init__(self, lengths=(3, 5), ends=("terminated",), discrete=False):
        self.action_space = gs.Discrete(3) if discrete else gs.Box(-1, 1, (2,))
        self._lengths, self._ends, self._episode = lengths, ends, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._episode = 0 if seed is not None else self._episode + 1
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        done = self._time == self._lengths[self._episode % len(self._lengths)]
        end = self._ends[self._episode % len(self._ends)]
        flags = (done and end != "truncated", done and end != "terminated")
        reward = self.np_random.normal() + float(np.ravel(action)[0])
        return self._observe(), reward, *flags, {}

    def _observe(self):
        return self.np_random.normal(1, 3, 3).astype(np.float32)


def noise(count=4, lengths=((3, 5), (2, 7), (4,), (20,)), **kwargs):
    return batch(*(Noise(lengths[i % len(lengths)], **kwargs) for i in range(count)))


def make(envs, network="dense", cls=impala.IMPALA, max_length=20, seed=0, **changes):
    defaults = {
        "unroll_length": 8,
        "queue_size": 0,
        "jit": False,
        "network": NETWORKS[network] if isinstance(network, str) else network,
    }
    config = impala.Config(**{**defaults, **changes})
    spaces = envs.observation_space, envs.action_space
    return cls(*spaces, len(envs), max_length, config, seed)


def weights(agent):
    return numbers(agent.network.trainable_variables)


def randomize(agent, seed=0, scale=0.5):
    """Another network than the one that acted."""
    for i, variable in enumerate(agent.network.trainable_variables):
        draw = tf.random.stateless_normal(variable.shape, [seed, i])
        variable.assign(variable.value + scale * draw)


# What is recorded and recomputed.


class Watched(impala.IMPALA):
    """Compares, at every update, the present policy to the one that acted."""

    def __init__(self, *args):
        super().__init__(*args)
        self.changes, self.results = [], []

    def loss(self, items, entropy_coef, scale):
        head = self.network.head
        parameters, *_ = self.network.sequence(
            items["observation"], items["state"], items["first"]
        )
        old = head.distribution(items["parameters"])
        new = head.distribution(parameters)
        change = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
        self.changes.append(np.abs(change).max())
        loss, metrics = super().loss(items, entropy_coef, scale)
        self.results.append({name: float(value) for name, value in metrics.items()})
        return loss, metrics


@pytest.mark.quick("1-shared", "0-gru")
@pytest.mark.parametrize("network", ["dense", "shared", "gru", "lstm", "both"])
@pytest.mark.parametrize("discrete", [0, 1])
def test_log_probs_recomputed_by_the_same_weights_are_those_recorded(network, discrete):
    """Without a queue all weights are one, with ends of episodes inside of unrolls."""
    envs = noise(discrete=discrete)
    agent = make(envs, network, Watched, unrolls_per_update=2)
    before = weights(agent)
    eagerly(envs, agent, 48)
    assert len(agent.changes) == 3
    assert max(agent.changes) < 1e-5
    assert not same(weights(agent), before)
    for result in agent.results:
        assert result["lag"] == 0
        assert result["clip_fraction"] == 0
        assert abs(result["rho"] - 1) < 1e-5
        assert abs(result["kl"]) < 1e-5


def test_log_probs_of_late_data_are_those_of_the_policy_that_acted():
    envs = noise()
    agent = make(envs, "gru", Watched, queue_size=1)
    eagerly(envs, agent, 40)
    assert len(agent.changes) == 4
    assert agent.changes[0] < 1e-5
    assert min(agent.changes[1:]) > 1e-3
    assert all(result["rho"] < 1 for result in agent.results[1:])


@pytest.mark.quick("3")
@pytest.mark.parametrize("size", [0, 1, 3])
def test_lag_is_the_size_of_the_queue_once_it_is_filled(size):
    envs = noise()
    agent = make(envs, cls=Watched, queue_size=size)
    eagerly(envs, agent, 8 * size)
    assert agent.updates.numpy() == 0
    eagerly(envs, agent, 8 * 7)
    assert agent.updates.numpy() == 7
    lags = [result["lag"] for result in agent.results]
    assert lags == [min(update, size) for update in range(7)]


def test_lag_is_measured_where_agents_act():
    """One half acts before the other half completes the batch, as in `simulate`."""
    agent = make(noise(2), cls=Watched, unroll_length=2)
    halves = [tf.constant([0]), tf.constant([1])]
    observation, flag = tf.ones([1, 3]), tf.constant([False])

    def act(rows):
        agent.perform(rows, observation)

    def learn(rows):
        agent.experience(rows, observation, None, tf.ones([1]), flag, flag, observation)

    with without_graphs():
        agent.begin_episodes(tf.range(2))
        act(halves[0])
        for turn in range(8):
            act(halves[1 - turn % 2])
            learn(halves[turn % 2])
    # The first of two steps of one of two agents was chosen before the update.
    assert [result["lag"] for result in agent.results] == [0, 0.25]


def test_only_named_rows_change():
    agent = make(noise(5), "lstm", queue_size=1)
    everyone, row = tf.range(5), tf.constant([1])
    agent.begin_episodes(everyone)
    agent.updates.assign(3)
    agent.perform(everyone, tf.ones([5, 3]))
    agent.updates.assign(4)
    states = [x for x in agent.variables if x.shape.rank and x.shape[0] == 5]
    assert len(states) >= 8
    before = numbers(states)
    flag, one = tf.constant([False]), tf.ones([1, 3])
    agent.perform(row, one)
    agent.experience(row, one, None, tf.ones([1]), flag, ~flag, one)
    for old, new in zip(before, numbers(states), strict=True):
        np.testing.assert_array_equal(np.delete(old, 1, 0), np.delete(new, 1, 0))
    assert agent._version.numpy().tolist() == [3, 4, 3, 3, 3]


def step_by_step(agent, items):
    """Values, and values behind the steps, by one step of the network at a time."""
    rows, length = items["mask"].shape
    state = items["state"]
    values, following = [], []
    for t in range(length):
        kept = ~items["first"][:, t, None]
        state = tf.nest.map_structure(lambda x, k=kept: tf.where(k, x, 0.0), state)
        _, value, state = agent.network.step(items["observation"][:, t], state)
        observation = agent.observations(items["next_observation"][:, t])
        _, after, _ = agent.network.step(observation, state)
        values.append(value)
        following.append(after)
    return tf.stack(values, 1).numpy(), tf.stack(following, 1).numpy()


ENDS = ("truncated", "terminated", "truncated", "truncated", "both")


@pytest.mark.parametrize("network", ["dense", "shared", "gru", "lstm", "both"])
def test_truncation_bootstraps_from_the_last_observation_and_termination_does_not(
    network,
):
    """By the present network, which is another one than the one that acted."""
    envs = noise(lengths=((1, 2), (2, 7), (3,), (20,)), ends=ENDS)
    agent = make(envs, network, unroll_length=12, normalize_observations=False)
    items = collected(agent, envs)
    randomize(agent)
    _, value, states = agent.network.sequence(
        items["observation"], items["state"], items["first"]
    )
    expected, following = step_by_step(agent, items)
    np.testing.assert_allclose(value, expected, atol=1e-5)
    data, _ = agent.memory.data()
    done, terminated = data["done"].numpy(), data["terminated"].numpy()
    cut = (done | (np.arange(12) == 11)) & ~terminated
    assert (cut[:, :-1].sum(1) > 1).sum() >= 2  # Several in the same unroll.
    assert (done & terminated).sum() >= 3
    bootstrap = agent.bootstrap(items, states)
    np.testing.assert_allclose(bootstrap, np.where(cut, following, 0.0), atol=1e-5)
    # What is seen next is seen before the next step, unless the episode is over.
    after, before = data["next_observation"][:, :-1], data["observation"][:, 1:]
    equal = (after == before).numpy().all(2)
    np.testing.assert_array_equal(equal, ~done[:, :-1])


@pytest.mark.parametrize("network", ["dense", "lstm"])
def test_bootstrap_of_an_unroll_without_ends(network):
    envs = noise(lengths=((50,),))
    agent = make(envs, network)
    items = collected(agent, envs)
    _, _, states = agent.network.sequence(
        items["observation"], items["state"], items["first"]
    )
    _, following = step_by_step(agent, items)
    bootstrap = agent.bootstrap(items, states).numpy()
    np.testing.assert_allclose(bootstrap[:, -1], following[:, -1], atol=1e-5)
    assert not bootstrap[:, :-1].any()


def test_several_unrolls_of_every_agent_are_one_batch():
    envs = noise(lengths=((50,),))
    agent = make(envs, "lstm", unroll_length=4, unrolls_per_update=3)
    assert agent.batch_steps == 12
    items = collected(agent, envs)
    assert items["observation"].shape == (12, 4, 3)
    data, _ = agent.memory.data()
    np.testing.assert_array_equal(
        items["state"][0][0], tf.reshape(data["state"][0][0][:, ::4], [12, 6])
    )
    assert items["end"].numpy().tolist() == [[False, False, False, True]] * 12
    assert not items["first"].numpy().any()


# The loss.


def by_recursion(agent, items, config):
    """Sums of the parts of the loss in float64, by remark 1 of the paper."""
    head = agent.network.head
    arguments = items["observation"], items["state"], items["first"]
    new = head.distribution(agent.network.policy(*arguments))
    old = head.distribution(items["parameters"])
    value, following = (x.astype(np.float64) for x in step_by_step(agent, items))
    log_prob = new.log_prob(items["sample"]).numpy().astype(np.float64)
    ratio = np.exp(log_prob - old.log_prob(items["sample"]).numpy())
    reward, end, cut = (items[key].numpy() for key in ("reward", "end", "cut"))
    policy = values = 0.0
    for row in range(len(value)):
        target = None
        for t in reversed(range(value.shape[1])):
            after = following[row, t] * cut[row, t] if end[row, t] else target
            base = after if end[row, t] else value[row, t + 1]
            error = reward[row, t] + config.discount * base - value[row, t]
            gain = reward[row, t] + config.discount * after - value[row, t]
            target = value[row, t] + min(config.rho_bar, ratio[row, t]) * error
            carried = config.discount * min(config.c_bar, ratio[row, t])
            target += carried * (after - base)
            policy -= min(config.rho_pg, ratio[row, t]) * gain * log_prob[row, t]
            values += 0.5 * (target - value[row, t]) ** 2
    return policy, values, float(tf.reduce_sum(new.entropy()))


@pytest.mark.parametrize("network", ["dense", "lstm"])
def test_loss_is_the_sum_of_its_parts(network):
    envs = noise(lengths=((1, 2), (2, 7), (3,), (20,)), ends=ENDS, discrete=True)
    agent = make(envs, network, value_coef=0.7, rho_bar=1.3, c_bar=0.9, rho_pg=1.1)
    items = collected(agent, envs)
    randomize(agent, scale=0.3)
    loss, metrics = agent.loss(items, 0.2, agent.scale(items["mask"]))
    policy, value, entropy = by_recursion(agent, items, agent.config)
    np.testing.assert_allclose(metrics["policy_loss"], policy, rtol=1e-4)
    np.testing.assert_allclose(metrics["value_loss"], value, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], entropy / 32, rtol=1e-5)
    total = policy + 0.7 * value - 0.2 * entropy
    np.testing.assert_allclose(loss, total, rtol=1e-4)
    assert 0 < metrics["clip_fraction"] < 1


def gradient(agent, items):
    return optimizers.replicas.gradient(
        lambda part: agent.loss(part, 0.1, agent.scale(items["mask"])),
        agent._trained,
        items,
    )


def test_sum_and_mean_differ_by_the_number_of_steps():
    results = []
    for reduction in ("sum", "mean"):
        envs = noise()
        agent = make(envs, reduction=reduction, unrolls_per_update=3)
        items = collected(agent, envs)
        gradients, loss, metrics = gradient(agent, items)
        parts = [loss, metrics["policy_loss"], metrics["value_loss"], *gradients]
        results.append([np.asarray(x) for x in parts])
    for total, mean in zip(*results, strict=True):
        np.testing.assert_allclose(total, 4 * 8 * 3 * mean, rtol=1e-5, atol=1e-5)
    assert np.abs(results[0][0]) > 1


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("network", ["dense", "lstm"])
def test_padding_changes_no_loss_metric_or_gradient(network, reduction):
    envs = noise(ends=("terminated", "truncated"))
    agent = make(envs, network, reduction=reduction)
    items = collected(agent, envs)
    randomize(agent)
    gradients, loss, metrics = gradient(agent, items)
    for garbage in (0.0, 50.0):
        padded = tf.nest.map_structure(
            lambda x, g=garbage: (
                tf.concat([x, tf.cast(g * tf.ones_like(x), x.dtype)], 0)
                if x.dtype != tf.bool
                else tf.concat([x, x], 0)
            ),
            items,
        )
        padded["mask"] = tf.concat([items["mask"], tf.zeros_like(items["mask"])], 0)
        other_gradients, other, other_metrics = gradient(agent, padded)
        np.testing.assert_allclose(other, loss, rtol=1e-5)
        for name, value in metrics.items():
            np.testing.assert_allclose(other_metrics[name], value, rtol=1e-4, atol=1e-5)
        for x, y in zip(other_gradients, gradients, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def test_blocks_of_unrolls_are_summed_up():
    results = []
    for block in (None, 3):
        envs = noise()
        descent = {"type": "sgd", "learning_rate": 0.01, "block": block}
        agent = make(envs, optimizer=descent)
        eagerly(envs, agent, 8)
        results.append(weights(agent))
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


REWARDS = [-100.0, -5.0, -0.5, 0.0, 0.5, 5.0, 100.0]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", REWARDS),
        ("clip", [-1, -1, -0.5, 0, 0.5, 1, 1]),
        # 5 tanh(1) = 3.807971 and 5 tanh(0.1) = 0.498340; 0.3 of them if negative.
        (
            "soft_asymmetric",
            [-1.5, -1.142391, -0.149502, 0, 0.498340, 3.807971, 5],
        ),
    ],
)
def test_rewards_by_hand(mode, expected):
    agent = make(noise(), normalize_rewards=mode)
    result = agent.normalized(tf.constant(REWARDS))
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["none", "clip", "soft_asymmetric", "return"])
def test_rewards_are_learned_from_as_configured(mode):
    envs = noise()
    agent = make(envs, normalize_rewards=mode)
    items = collected(agent, envs)
    data, _ = agent.memory.data()
    np.testing.assert_array_equal(items["reward"], agent.normalized(data["reward"]))
    assert same([items["reward"]], [data["reward"]]) == (mode == "none")


# Updates.


def test_there_is_one_step_of_the_optimizer_per_batch():
    envs = noise()
    agent = make(envs, queue_size=1, unroll_length=4)
    eagerly(envs, agent, 24)
    adam = agent.optimizer.optimizer.optimizer  # Guarded, gradient, Adam.
    assert agent.updates.numpy() == adam.iterations.numpy() == 5
    result = agent.metrics.result()
    assert set(result) == set(agent.metrics.names) - {"failed_updates"}
    wanted = {"policy_loss", "value_loss", "entropy", "lag", "rho", "clip_fraction"}
    assert wanted | {"kl", "gradient_norm", "explained_variance"} <= set(result)


@pytest.mark.quick("shared")
@pytest.mark.parametrize("network", ["shared", "gru"])
def test_without_a_lag_the_updates_are_those_of_advantage_actor_critic(network):
    """V-trace on data of the current policy is the return to the unroll's end.

    Espeholt et al. (2018), section 4.1.
    """
    settings = {
        "unroll_length": 5,
        "normalize_rewards": "none",
        "value_coef": 0.3,
        "entropy_coef": 0.02,
        "learning_rate": 0.01,
        "optimizer": "adam",
        "jit": False,
        "network": NETWORKS[network],
    }

    def learned(agent, envs):
        first = weights(agent)
        eagerly(envs, agent, 20)
        assert agent.updates.numpy() == 4
        assert not same(first, weights(agent))
        return weights(agent)

    envs = noise(ends=ENDS)
    spaces = envs.observation_space, envs.action_space
    expected = learned(a2c.A2C(*spaces, 4, 20, a2c.Config(**settings)), envs)
    agent = make(envs, reduction="mean", **settings)
    for mine, theirs in zip(learned(agent, noise(ends=ENDS)), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_update_is_one_function_that_is_traced_once():
    envs = noise()
    agent = make(envs, queue_size=1, jit=True)
    tools.simulate(envs, agent, 32)
    assert agent.updates.numpy() == 3
    assert agent._update.experimental_get_tracing_count() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", ["dense", pytest.param("lstm", marks=pytest.mark.slow)]
)
def test_everything_compiles_to_one_program(network):
    envs = compiled.Compiled(functional.CartPole(), 4)
    agent = make(envs, network, queue_size=2, max_length=500, jit=None)
    before = weights(agent)
    tools.simulate(envs, agent, 40)
    result = agent.metrics.result()
    assert np.isfinite(list(result.values())).all()
    assert not same(weights(agent), before)
    assert agent.updates.numpy() == 3
    assert agent.steps.numpy() == 160


def test_nothing_is_learned_across_a_forced_reset():
    envs = noise(lengths=((5,),))
    agent = make(envs, "lstm", Watched)
    for steps in (3, 7, 8, 16):
        envs.discontinue(np.arange(4))
        eagerly(envs, agent, steps)
    assert agent.updates.numpy() == 3
    assert max(agent.changes) < 1e-5


def test_failed_updates_are_undone_and_counted():
    class Failing(impala.IMPALA):
        broken = False

        def loss(self, items, entropy_coef, scale):
            loss, metrics = super().loss(items, entropy_coef, scale)
            return loss * (np.nan if self.broken else 1.0), metrics

    envs = noise()
    agent = make(envs, cls=Failing, max_failures=2)
    eagerly(envs, agent, 8)
    agent.broken, before = True, weights(agent)
    eagerly(envs, agent, 8)
    assert same(weights(agent), before)
    assert agent.metrics.result()["failed_updates"] == 0.5


# Checkpoints.


def stored(agent, path):
    name = tf.train.Checkpoint(**agent.persistent()).write(str(path / "stored"))
    reader = tf.train.load_checkpoint(name)
    names = reader.get_variable_to_shape_map()
    return {k: reader.get_tensor(k) for k in names if k.endswith("VARIABLE_VALUE")}


@pytest.mark.parametrize(
    ("network", "size"),
    [("dense", 2), pytest.param("lstm", 1, marks=pytest.mark.slow)],
)
def test_resumed_training_is_the_uninterrupted_one(network, size, tmp_path):
    """The queue is part of the checkpoint, so that no data is lost."""

    def start(folder, steps):
        envs = noise(ends=ENDS)
        rate = {"type": "linear", "from": 1e-2, "to": 0, "over": 320}
        descent = {"type": "adam", "learning_rate": rate}
        options = {"queue_size": size, "optimizer": descent}
        agent = make(envs, network, normalize_rewards="return", **options)
        checkpoints = checkpoint.Checkpoints(folder)
        runner = loop.Loop(envs, agent, loop.Plan(steps, 80, 3), 0, checkpoints)
        if checkpoints.names():
            runner.restore()
        return agent, runner

    def run(runner):
        return [(x.step, x.metrics) for x in runner.run() if x.finished]

    agent, runner = start(tmp_path / "a", 384)
    whole = run(runner)
    _, runner = start(tmp_path / "b", 192)
    parts = run(runner)
    other, runner = start(tmp_path / "b", 384)
    parts += run(runner)
    assert parts == whole
    assert agent.updates.numpy() == 12 - size
    left, right = stored(agent, tmp_path), stored(other, tmp_path)
    assert left.keys() == right.keys()
    assert any("waiting" in name for name in left)
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


# Configs.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reduction": "max"}, "reduction must be one of sum, mean, got 'max'"),
        ({"queue_size": -1}, "queue_size must be at least 0, got -1"),
        ({"unroll_length": 0}, "unroll_length must be positive, got 0"),
        ({"unrolls_per_update": 0}, "unrolls_per_update must be positive"),
        ({"rho_bar": -1.0}, "rho_bar must be at least 0"),
        ({"vtrace_lambda": 1.5}, "vtrace_lambda must be 0 to 1, got 1.5"),
        ({"normalize_rewards": "soft"}, "clip, none, soft_asymmetric, got 'soft'"),
        ({"optimizer": {"type": "natural_gradient"}}, "'kl', which is not provided"),
    ],
)
def test_impossible_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        impala.Config(**changes)


def test_defaults_are_those_of_the_paper_for_atari():
    config = impala.Config()
    assert (config.unroll_length, config.discount) == (20, 0.99)
    assert (config.value_coef, config.entropy_coef) == (0.5, 0.01)
    assert (config.rho_bar, config.c_bar, config.rho_pg) == (1, 1, 1)
    assert (config.reduction, config.normalize_rewards) == ("sum", "clip")
    assert config.reward_clip == 1
    optimizer, _ = config.create_optimizer()
    optimizer.build([keras.Variable(0.0)])
    descent = optimizer.optimizer
    assert isinstance(descent, keras.optimizers.RMSprop)
    assert (descent.rho, descent.momentum, descent.epsilon) == (0.99, 0, 0.01)


# Learning.


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    envs.discontinue(np.arange(len(envs)))
    result = tools.simulate(envs, agent, steps, training=False)
    return result["score"].numpy()[result["done"].numpy()].mean()


@pytest.mark.slow
def test_value_of_an_endless_reward():
    """One per step for ever is worth 1 / (1 - 0.98) = 50."""
    values = []
    for terminate, steps in ((False, 16_000), (True, 8_000)):
        envs = batch(*(Endless(not terminate) for _ in range(8)))
        rate = {"type": "linear", "from": 2e-2, "to": 1e-3, "over": 8 * steps}
        agent = make(
            envs,
            networks.NetworkConfig(layers=(32,), activation="tanh"),
            unroll_length=20,
            queue_size=1,
            discount=0.98,
            normalize_rewards="none",
            normalize_observations=False,
            reduction="mean",
            jit=True,
            optimizer={"type": "adam", "learning_rate": rate},
        )
        tools.simulate(envs, agent, steps)
        grid = np.random.default_rng(0).uniform(-1, 1, [200, 2])
        state = agent.network.initial_state(200)
        value = agent.network.step(tf.constant(grid, tf.float32), state)[1]
        values.append(value.numpy())
    assert np.abs(values[0] - 50).max() < 1
    # Mean of (1 - 0.98^n) / 0.02 over the 1 to 8 remaining steps.
    expected = np.mean([(1 - 0.98**n) / 0.02 for n in range(1, 9)])
    assert abs(values[1].mean() - expected) < 1


def trained(config, steps):
    """Mean scores of chance, and of a policy after so many environment steps."""
    envs = runs.environments(config)
    try:
        chance = mock_algorithm.MockAlgorithm(envs.action_space)
        chance = None if envs.compiled else score(envs, chance, 500)
        agent = runs.algorithm(config, runs.describe(config))
        envs.discontinue(np.arange(len(envs)))
        batch = len(envs) * agent.batch_steps
        tools.simulate(envs, agent, steps // batch * agent.batch_steps)
        return chance, score(envs, agent, 500)
    finally:
        envs.close()


def test_cartpole_is_solved():
    """By the preset; the environments step here, since other tests use the processors."""
    config = runs.in_process(named.load("cartpole_impala"))
    chance, result = trained(config, 50_000)
    assert chance < 100
    assert result >= 475


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("memory_impala", 0.95, 1.0),
        pytest.param("memory_impala_forward", 0.15, 0.35, marks=pytest.mark.slow),
    ],
)
def test_only_recurrent_networks_recall_the_cue(name, low, high):
    """Of 1600 episodes, where chance is 1/4."""
    _, result = trained(named.load(name), 150_000)
    assert low <= result <= high
