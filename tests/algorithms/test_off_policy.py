"""DQN, Ape-X, SAC and TD3: what they learn from, when, and that they learn."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import Endless, batch, eagerly, numbers, same

from agents import networks, tools
from agents.algorithms import apex, dqn, sac, td3
from agents.environments import compiled, functional
from agents.networks import soft_actor_critic
from agents.scripts import configs, runs
from agents.tools import checkpoint, loop, mock_algorithm
from agents.tools import spaces as spaces_

CLASSES = {"dqn": dqn.DQN, "apex": apex.Apex, "sac": sac.SAC, "td3": td3.TD3}
CONFIGS = {
    "dqn": dqn.Config,
    "apex": apex.Config,
    "sac": sac.Config,
    "td3": td3.Config,
}
DISCRETE = ("dqn", "apex")
SGD = {"type": "sgd", "learning_rate": 0.1}
TABLE = networks.NetworkConfig(layers=())
SMALL = networks.NetworkConfig(layers=(32, 32), activation="tanh")


class Chain(gymnasium.Env):
    """Three states in a row: right moves on, left goes back; the last step pays 1.

    Action 1 in state 2 ends the episode with reward 1, action 0 in state 0 pays 0.1.
    """

    observation_space = gs.Discrete(3)
    action_space = gs.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._time = int(self.np_random.integers(3)), 0
        return self._state, {}

    def step(self, action):
        self._time += 1
        truncated = self._time == 10
        if action == 1 and self._state == 2:
            return 2, 1.0, True, truncated, {}
        reward = 0.1 if action == 0 and self._state == 0 else 0.0
        self._state = min(self._state + 1, 2) if action else max(self._state - 1, 0)
        return self._state, reward, False, truncated, {}


class Identity(gymnasium.Env):
    """Pays for actions that equal the observation."""

    def __init__(self, action_space):
        self.observation_space = gs.Box(-1, 1, (2,))
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        if isinstance(self.action_space, gs.Box):
            low, high = self.action_space.low[0], self.action_space.high[0]
            unit = 2 * (float(action[0]) - low) / (high - low) - 1
            reward = 1 - min(abs(unit - 0.8 * self._seen[0]), 1)
        else:
            start = np.ravel(self.action_space.start)
            goal = (self._seen > 0).astype(int)[: len(start)]
            reward = float(np.mean(np.ravel(action) - start == goal))
        self._time += 1
        return self._observe(), reward, self._time == 10, False, {}

    def _observe(self):
        self._seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._seen


def make(name, envs, **changes):
    defaults = {
        "capacity": 500,
        "batch_size": 8,
        "start_size": 16,
        "jit": False,
        "network": SMALL,
    }
    config = CONFIGS[name](**{**defaults, **changes})
    spaces = envs.observation_space, envs.action_space
    return CLASSES[name](*spaces, len(envs), 500, config)


def stored(agent, folder):
    """Everything that a checkpoint holds, by name."""
    path = tf.train.Checkpoint(**agent.persistent()).write(str(folder / "stored"))
    reader = tf.train.load_checkpoint(path)
    names = sorted(reader.get_variable_to_shape_map())
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


def equal(left, right):
    """Whether what two checkpoints hold is the same, bit for bit."""
    return set(left) == set(right) and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def table(agent, values, network=None):
    """Set the values of states (rows) and actions of a network without layers."""
    kernel, bias = (network or agent.network).trainable_variables
    kernel.assign(values)
    bias.assign(tf.zeros_like(bias))


def items(**changes):
    """Four transitions of the chain: state, action, reward, discount, next state."""
    defaults = {
        "observation": tf.constant([0, 1, 2, 2], tf.int64),
        "action": tf.constant([[1], [1], [1], [0]], tf.int64),
        "reward": tf.constant([0.0, 0.5, 1.0, -1.0]),
        "discount": tf.constant([0.9, 0.81, 0.0, 0.9]),
        "next_observation": tf.constant([1, 2, 0, 1], tf.int64),
        "weight": tf.constant([1.0, 0.5, 1.0, 0.25]),
    }
    return {**defaults, **changes}


# Q-learning.

ONLINE = [[1.0, 2.0], [3.0, 0.0], [0.0, 5.0]]
TARGET = [[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]


@pytest.mark.parametrize(
    ("double", "expected"),
    [
        # The online network prefers action 0 in state 1, and action 1 in state 2.
        (True, [0.9 * 30, 0.5 + 0.81 * 60, 1.0, -1.0 + 0.9 * 30]),
        (False, [0.9 * 40, 0.5 + 0.81 * 60, 1.0, -1.0 + 0.9 * 40]),
    ],
)
def test_targets_by_hand(double, expected):
    agent = make("dqn", batch(Chain()), double=double, network=TABLE)
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    target = agent.target(items())[:, 0]
    np.testing.assert_allclose(target, expected, rtol=1e-6)


def test_weights_are_outside_of_the_huber_loss():
    """RLgraph weighted the error, which is squared afterwards."""
    agent = make("dqn", batch(Chain()), network=TABLE, huber_delta=1.0)
    table(agent, ONLINE)
    target = tf.constant([[2.5], [3.0], [5.0], [0.5]])  # Errors 0.5, 3, 0 and 0.5.
    loss, _ = agent.loss(items(target=target))
    terms = [0.5 * 0.5**2, 0.5 * (3.0 - 0.5), 0.0, 0.25 * 0.5 * 0.5**2]
    np.testing.assert_allclose(loss, np.mean(terms), rtol=1e-6)


@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
def test_slope_of_the_huber_loss(delta):
    """Not zero beyond delta, as where errors are clipped."""
    error = tf.constant([-10.0, -3.0, -0.1, 0.0, 0.2, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(error)
        loss = dqn.huber(error, delta)
    expected = np.clip(error.numpy(), -delta, delta)
    np.testing.assert_allclose(tape.gradient(loss, error), expected, rtol=1e-6)
    np.testing.assert_allclose(dqn.huber(error, None), 0.5 * error.numpy() ** 2)


def test_priorities_are_errors_and_not_losses():
    agent = make("dqn", batch(Chain()), network=TABLE, prioritized=True)
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    _, errors = agent.learn(items())
    target = np.array([27, 49.1, 1, 26])
    np.testing.assert_allclose(errors, np.abs(target - [2, 0, 5, 0]), rtol=1e-5)


def test_dueling_values_have_advantages_of_mean_zero():
    agent = make("dqn", batch(Chain()), network=TABLE, dueling=True)
    advantages, _, states, _ = agent.network.trainable_variables
    advantages.assign(ONLINE)
    states.assign([[7.0], [8.0], [9.0]])
    values = agent.network(tf.constant([0, 1, 2], tf.int64))[..., 0]
    expected = [[6.5, 7.5], [9.5, 6.5], [6.5, 11.5]]
    np.testing.assert_allclose(values, expected)


def test_projection_by_hand():
    """Bellemare et al. (2017), algorithm 1, on three atoms."""
    support = tf.constant([-1.0, 0.0, 1.0])
    probabilities = tf.constant([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    returns = tf.constant([[-1.5, 0.25, 0.5], [0.75, 0.75, 0.75]])
    result = dqn.project(probabilities, returns, support)
    expected = [[0.2, 0.3 * 0.75 + 0.25, 0.3 * 0.25 + 0.25], [0, 0.25, 0.75]]
    np.testing.assert_allclose(result, expected, atol=1e-6)


THREE = {"atoms": 3, "value_range": (-1.0, 1.0), "network": TABLE}
LOW, HIGH = [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]


def categorical(agent, network, *preferred):
    """Make one action of each state have high returns, others low ones."""
    rows = [[HIGH if x == best else LOW for x in (0, 1)] for best in preferred]
    table(agent, np.log(np.reshape(rows, [3, 6])), network)


@pytest.mark.parametrize("double", [True, False])
def test_targets_of_distributions_by_hand(double):
    agent = make("dqn", batch(Chain()), double=double, **THREE)
    categorical(agent, agent.network, 0, 0, 0)
    categorical(agent, agent.target_network, 1, 1, 1)
    target = agent.target(
        items(
            reward=tf.constant([0.0, 0.5, 1.0, -1.0]),
            discount=tf.constant([0.5, 0.5, 0.0, 1.0]),
        )
    )
    low, middle, high = LOW if double else HIGH  # Of the action that is chosen.
    expected = [
        [low / 2, low / 2 + middle + high / 2, high / 2],  # At -0.5, 0 and 0.5.
        [0, low + middle / 2, middle / 2 + high],  # At 0, 0.5 and 1.
        [0, 0, 1],  # Terminated, so at 1.
        [low + middle, high, 0],  # At -2, -1 and 0.
    ]
    np.testing.assert_allclose(target, expected, atol=1e-6)


def test_loss_and_priorities_of_distributions_by_hand():
    """The divergence, whose gradient is that of the cross entropy."""
    agent = make("dqn", batch(Chain()), prioritized=True, **THREE)
    categorical(agent, agent.network, 0, 0, 0)
    target = np.array([HIGH, HIGH, [0.0, 0.0, 1.0], LOW], np.float32)
    data = items(target=tf.constant(target))
    chosen = np.array([LOW, LOW, LOW, HIGH])  # Actions 1, 1, 1 and 0.
    terms = target * (np.log(np.maximum(target, 1e-8)) - np.log(chosen))
    divergence = terms.sum(1)
    loss, _ = agent.loss(data)
    weights = data["weight"].numpy()
    np.testing.assert_allclose(loss, np.mean(weights * divergence), rtol=1e-5)
    np.testing.assert_allclose(agent.priorities(data), divergence, rtol=1e-5)


@pytest.mark.parametrize("atoms", [1, 11])
def test_branches_have_their_own_best_actions(atoms):
    env = Identity(gs.MultiDiscrete([2, 3], start=[1, -1]))
    agent = make("dqn", batch(env), atoms=atoms)
    values = tf.constant([[0.0, 1.0, 5.0, 7.0, 6.0]])
    np.testing.assert_array_equal(agent.network.best(values, None), [[1, 1]])
    chosen = agent.network.chosen(values, tf.constant([[0, 2]], tf.int64))
    np.testing.assert_array_equal(chosen, [[0.0, 6.0]])
    action = agent.environment_action(tf.constant([[1, 2]], tf.int64))
    np.testing.assert_array_equal(action, [[2, 1]])


def test_noise_is_for_training_only():
    envs = batch(*(Chain() for _ in range(4)))
    agent = make("dqn", envs, noisy_std=0.5, network=TABLE)
    seen = tf.constant([0, 1, 2, 0], tf.int64)
    rows = tf.range(4)
    still = [agent.perform(rows, seen, training=False).numpy() for _ in range(20)]
    assert len({tuple(x) for x in still}) == 1
    moving = [agent.perform(rows, seen).numpy() for _ in range(50)]
    assert len({tuple(x) for x in moving}) > 1


@pytest.mark.parametrize("name", DISCRETE)
def test_target_network_is_a_copy_renewed_at_the_exact_step(name):
    envs = batch(Chain())
    agent = make(name, envs, target_period=5, replay_ratio=1.0, optimizer=SGD)
    first = numbers(agent.network.trainable_variables)
    assert same(first, numbers(agent.target_network.trainable_variables))
    while agent.updates.numpy() < 4:
        tools.simulate(envs, agent, 1)
        assert same(first, numbers(agent.target_network.trainable_variables))
    assert agent.updates.numpy() == 4
    tools.simulate(envs, agent, 1)
    copy = numbers(agent.network.trainable_variables)
    assert not same(first, copy)
    assert same(copy, numbers(agent.target_network.trainable_variables))
    for _ in range(4):
        tools.simulate(envs, agent, 1)
        assert not same(copy, numbers(agent.network.trainable_variables))
        assert same(copy, numbers(agent.target_network.trainable_variables))
    assert agent.updates.numpy() == 9


def test_values_of_the_chain_are_recovered():
    discount = 0.9
    best = np.zeros([3, 2])
    for _ in range(200):
        state = best.max(1)
        best = np.array(
            [
                [0.1 + discount * state[0], discount * state[1]],
                [discount * state[0], discount * state[2]],
                [discount * state[1], 1.0],
            ]
        )
    envs = batch(*(Chain() for _ in range(8)))
    agent = make(
        "dqn",
        envs,
        batch_size=32,
        start_size=100,
        capacity=1000,
        discount=discount,
        epsilon=1.0,
        replay_ratio=1.0,
        target_period=20,
        network=TABLE,
        optimizer={
            "type": "adam",
            "learning_rate": {"type": "linear", "from": 0.05, "to": 0.001, "over": 6e3},
        },
    )
    tools.simulate(envs, agent, 800)
    values = agent.network(tf.constant([0, 1, 2], tf.int64))[..., 0]
    np.testing.assert_allclose(values, best, atol=1e-2)


# Ape-X.


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1, {}, [0.4]),
        (3, {}, [0.4, 0.4**4.5, 0.4**8]),
        (3, {"epsilon": 0.5, "epsilon_alpha": 1.0}, [0.5, 0.5**1.5, 0.25]),
        (2, {"ladder_size": 5, "ladder_offset": 2}, [0.4**4.5, 0.4**6.25]),
        (1, {"ladder_size": 1}, [0.4]),
    ],
)
def test_ladder_by_hand(count, options, expected):
    """RLgraph divided by N - 1, which is zero for one agent."""
    agent = make("apex", batch(*(Chain() for _ in range(count))), **options)
    np.testing.assert_allclose(agent.epsilon(count), expected, rtol=1e-12)


def test_every_agent_has_its_own_epsilon():
    """RLgraph drew one for all."""
    agent = make("apex", batch(*(Chain() for _ in range(3))), network=TABLE)
    advantages, *_ = agent.network.trainable_variables
    advantages.assign(ONLINE)
    states = tf.constant([0, 0, 0], tf.int64)  # Where action 1 is better.
    perform = tf.function(lambda: agent.perform(tf.range(3), states), autograph=False)
    share = 1 - np.mean([perform().numpy() for _ in range(600)], 0)
    assert 0.14 < share[0] < 0.26
    assert share[1] < 0.03
    assert share[2] < 0.01


@pytest.mark.parametrize("options", [{"ladder_size": 3}, {"ladder_offset": 1}])
def test_agents_that_are_not_on_the_ladder_are_refused(options):
    envs = batch(*(Chain() for _ in range(4)))
    with pytest.raises(ValueError, match="4 agents do not fit into ladder_size"):
        make("apex", envs, **options)
    config = apex.Config(**options).without_memory(4)
    assert (config.ladder_size, config.ladder_offset) == (None, 0)


def remember(agent, states, actions, rewards, end):
    """Steps of row 0 through these states; the last one ends the episode."""
    agent.begin_episodes(tf.constant([0]))
    for i, (action, reward) in enumerate(zip(actions, rewards, strict=True)):
        last = i == len(actions) - 1
        agent._chosen.assign([[action]])
        agent.experience(
            tf.constant([0]),
            tf.constant(states[i : i + 1], tf.int64),
            tf.constant([action], tf.int64),
            tf.constant([reward]),
            tf.constant([last and end == "terminated"]),
            tf.constant([last and end == "truncated"]),
            tf.constant(states[i + 1 : i + 2], tf.int64),
        )


def priorities(agent):
    """Of all entries of the memory."""
    return agent.memory.persistent["selector"]["levels"][0].numpy().ravel()


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_first_priorities_by_hand(end):
    """Three steps, double, bootstrapping from the last observation if truncated."""
    agent = make(
        "apex",
        batch(Chain()),
        network=TABLE,
        dueling=False,
        discount=0.5,
        priority_alpha=0.6,
    )
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    remember(agent, [0, 1, 2, 1, 0], [1, 0, 1, 0], [1.0, 2.0, -4.0, 8.0], end)
    # Values of state 1, after three steps, and of state 0, after the last one, that
    # the target network has for the actions that the online network prefers.
    third, last = 30.0, 20.0 if end == "truncated" else 0.0
    targets = [
        1 + 2 / 2 - 4 / 4 + third / 8,
        2 - 4 / 2 + 8 / 4 + last / 8,
        -4 + 8 / 2 + last / 4,
        8 + last / 2,
    ]
    errors = np.abs(np.array(targets) - [2.0, 3.0, 5.0, 3.0])
    found = priorities(agent)
    np.testing.assert_allclose(found[:4], (errors + 1e-6) ** 0.6, rtol=1e-5)
    assert not found[4:].any()


@pytest.mark.parametrize("in_program", [False, True])
def test_first_priorities_are_those_of_the_learner(in_program):
    envs = batch(*(Identity(gs.MultiDiscrete([2, 3])) for _ in range(4)))
    if in_program:
        envs = compiled.Compiled(functional.CartPole(), 4)
    agent = make(
        "apex",
        envs,
        discount=0.9,
        priority_alpha=1.0,
        replay_ratio=0.0,
    )
    for variable in agent.target_network.trainable_variables:
        variable.assign(variable + 0.1)
    tools.simulate(envs, agent, 45)
    slots = np.flatnonzero(found := priorities(agent))
    assert len(slots) == int(agent.memory.size) >= 4 * 38
    rows, entries = np.divmod(slots, agent.memory._length)
    index = tf.constant(entries * 4 + rows, tf.int64)
    data = agent.prepare(agent.memory.get(index))
    _, errors = agent.learn({**data, "weight": tf.ones_like(data["reward"])})
    np.testing.assert_allclose(found[slots], errors, atol=2e-6, rtol=1e-5)
    assert np.unique(np.round(found[slots], 4)).size > 100


class Pays(Endless):
    """Pays a number at every step; episodes end after 8."""

    def __init__(self, amount):
        super().__init__(truncate=False, discrete=True)
        self._amount = amount

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self._amount * reward, *rest


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 8 * (7 + 8) / 2),
        ({"ladder_size": 16, "ladder_offset": 8}, 8 * (5 + 6 + 7 + 8) / 4),
        ({"ladder_size": 10, "ladder_offset": 1}, 8 * (7 + 8) / 2),
        ({"ladder_size": 16}, None),
    ],
)
def test_score_of_the_greedy_end_of_the_ladder(options, expected):
    """Raw returns of whole episodes of the last quarter."""
    envs = batch(*(Pays(amount) for amount in range(1, 9)))
    agent = make("apex", envs, reward_clip=0.5, replay_ratio=0.0, **options)
    tools.simulate(envs, agent, 5)
    assert agent.metrics.result() == {}
    tools.simulate(envs, agent, 20, reset=True)
    assert agent.metrics.result().get("greedy_score") == expected


# When they learn.


@pytest.mark.parametrize("ratio", [0.1, 0.25, 1.0, 2.5])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_replay_ratio_is_exact_for_any_number_of_agents(count, ratio):
    envs = batch(*(Chain() for _ in range(count)))
    agent = make("dqn", envs, replay_ratio=ratio, network=TABLE)
    while agent.memory.size < 16:
        tools.simulate(envs, agent, 1)
    before = agent._counted.numpy() - count * (agent._counted.numpy() > 0)
    assert before == 0
    tools.simulate(envs, agent, 40)
    counted = agent._counted.numpy()
    assert abs(counted - 40 * count) <= count
    assert agent.updates.numpy() == np.floor(counted * ratio + 1e-9)


@pytest.mark.parametrize(
    ("capacity", "start_size"), [(200, 183), (200, 200), (200, 1000)]
)
def test_replay_ratio_is_exact_where_the_memory_is_hardly_large_enough(
    capacity, start_size
):
    """Every end of an episode takes room, so 200 transitions are never there."""
    envs = batch(*(Identity(gs.Discrete(2)) for _ in range(4)))
    options = {"capacity": capacity, "start_size": start_size}
    agent = make("dqn", envs, replay_ratio=1.0, network=TABLE, **options)
    tools.simulate(envs, agent, 300)
    assert 1200 - 200 <= agent.updates.numpy() <= 1200 - 183 + 4


@pytest.mark.parametrize("name", CLASSES)
def test_evaluation_is_deterministic_and_learns_nothing(name, tmp_path):
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))
    envs = batch(*(Identity(space) for _ in range(4)))
    agent = make(name, envs, replay_ratio=0.5)
    tools.simulate(envs, agent, 20)
    before = stored(agent, tmp_path)
    seen = tf.random.stateless_uniform([4, 2], [1, 2], -1.0, 1.0)
    actions = [agent.perform(tf.range(4), seen, False).numpy() for _ in range(3)]
    tools.simulate(envs, agent, 20, training=False, reset=True)
    assert equal(stored(agent, tmp_path), before)
    assert np.array_equal(actions[0], actions[1])
    for action in actions[0]:
        assert space.contains(np.asarray(action, space.dtype))


def test_evaluation_leaves_running_transitions_in_the_memory():
    """What begins in evaluation is no concern of the memory; what begins later is."""
    envs = batch(*(Endless(True) for _ in range(2)))
    agent = make("dqn", envs, replay_ratio=0.0, n_step=3)
    eagerly(envs, agent, 5)
    variables = tf.nest.flatten(agent.memory.variables)
    before = numbers(variables)
    eagerly(envs, agent, 12, training=False)
    assert same(numbers(variables), before)
    size = int(agent.memory.size)
    eagerly(envs, agent, 1)
    assert int(agent.memory.size) == size


@pytest.mark.parametrize("name", CLASSES)
def test_metrics_are_finite_and_declared(name):
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))
    envs = batch(*(Identity(space) for _ in range(4)))
    agent = make(name, envs, prioritized=True, n_step=3, replay_ratio=0.5)
    tools.simulate(envs, agent, 20)
    result = agent.metrics.result()
    assert set(result) == set(agent.metrics.names)
    assert np.isfinite(list(result.values())).all()
    assert agent._run_updates.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("name", CLASSES)
def test_learning_rates_follow_their_schedules(name):
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))
    envs = batch(*(Identity(space) for _ in range(4)))
    rate = {"type": "linear", "from": 0.5, "to": 0.1, "over": 100}
    descent = {"type": "adam", "learning_rate": rate}
    fields = {field: descent for field in CONFIGS[name].OPTIMIZERS}
    agent = make(name, envs, replay_ratio=0.25, **fields)
    rates = []
    for _ in range(3):
        tools.simulate(envs, agent, 15)
        rates.append([float(x.optimizer.learning_rate) for x in agent.optimizers])
    expected = [[x] * len(agent.optimizers) for x in (0.26, 0.1, 0.1)]
    np.testing.assert_allclose(rates, expected, atol=1e-6)


# Soft actor-critic.


def test_actor_update_leaves_critics_untouched():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("sac", envs, critic_optimizer={"type": "sgd", "learning_rate": 0.0})
    before = numbers(agent.critics.trainable_variables)
    policy = numbers(agent.policy.trainable_variables)
    tools.simulate(envs, agent, 40)
    assert same(numbers(agent.critics.trainable_variables), before)
    assert not same(numbers(agent.policy.trainable_variables), policy)


def test_temperature_stays_positive_and_moves_towards_the_target_entropy():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    fast = {"type": "adam", "learning_rate": 0.5}
    for target, above in ((-20.0, False), (20.0, True)):
        agent = make("sac", envs, target_entropy=target, temperature_optimizer=fast)
        tools.simulate(envs, agent, 60)
        temperature = float(agent.temperature)
        assert temperature > 0
        assert (temperature > 1) == above


def test_losses_are_finite_far_from_the_middle():
    """At 20 before tanh, where it rounds to one."""
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("sac", envs)
    output = agent.policy.trainable_variables[-1]
    output.assign([20.0, 0.0])
    seen = tf.zeros([5, 2])
    with tf.GradientTape() as tape:
        loss, _ = agent.policy_loss({"observation": seen})
    gradients = tape.gradient(loss, [x.value for x in agent.policy.trainable_variables])
    assert np.isfinite(loss)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def outputs(actor, *biases):
    """Make every network of an actor, or critics, answer with its biases."""
    variables = actor.trainable_variables
    for kernel in variables[::2]:
        kernel.assign(tf.zeros_like(kernel))
    for variable, value in zip(variables[1::2], biases, strict=True):
        variable.assign(value)


def test_targets_of_sac_are_soft_and_pessimistic():
    envs = batch(Identity(gs.Discrete(2)))
    agent = make("sac", envs, network=TABLE)
    outputs(agent.target_critics, [3.0, 1.0], [2.0, 5.0])
    outputs(agent.policy, [np.log(3.0), 0.0])
    agent.log_temperature.assign(np.log(0.5))
    data = {
        "next_observation": tf.zeros([2, 2]),
        "reward": tf.constant([1.0, 1.0]),
        "discount": tf.constant([0.9, 0.0]),
    }
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    value = 0.75 * 2.0 + 0.25 * 1.0 + 0.5 * entropy
    np.testing.assert_allclose(agent.target(data), [1 + 0.9 * value, 1.0], rtol=1e-5)


def continuous(name, **changes):
    """Agent with networks of one layer for actions of one number."""
    return make(name, batch(Identity(gs.Box(-2, 1, (1,)))), network=TABLE, **changes)


def steps_of_one_number(**changes):
    """Two transitions; the second one terminated."""
    return {
        "observation": tf.zeros([2, 2]),
        "action": tf.constant([[0.5], [-0.5]]),
        "reward": tf.constant([1.0, 2.0]),
        "discount": tf.constant([0.9, 0.0]),
        "next_observation": tf.zeros([2, 2]),
        "weight": tf.constant([1.0, 0.25]),
        **changes,
    }


def test_targets_of_sac_are_pessimistic_for_boxes():
    agent = continuous("sac", initial_temperature=0.5)
    outputs(agent.target_critics, [3.0], [2.0])
    agent.generator.reset_from_seed(1)
    target = agent.target(steps_of_one_number())
    agent.generator.reset_from_seed(1)
    distribution = agent.distribution(tf.zeros([2, 2]))
    log_prob = distribution.log_prob(distribution.sample(agent.generator))
    expected = [1 + 0.9 * (2.0 - 0.5 * log_prob[0]), 2.0]
    np.testing.assert_allclose(target, expected, rtol=1e-5)


@pytest.mark.parametrize(("twin", "value"), [(True, 2.0), (False, 3.0)])
def test_targets_of_td3_are_pessimistic(twin, value):
    """And those of DDPG are not."""
    agent = continuous("td3", twin=twin)
    outputs(agent.target_critics, [3.0], [2.0])
    target = agent.target(steps_of_one_number())
    np.testing.assert_allclose(target, [1 + 0.9 * value, 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "lowest", "highest"),
    [
        ({"target_noise": 0.0}, 0.5, 0.5),
        ({"target_noise": 10.0, "target_noise_clip": 0.2}, 0.3, 0.7),
        ({"target_noise": 10.0, "target_noise_clip": 5.0}, -1.0, 1.0),
    ],
)
def test_targets_of_td3_are_averaged_over_actions_nearby(options, lowest, highest):
    """Critics that answer with the action show which ones they were asked about."""
    agent = continuous("td3", **options)
    outputs(agent.target_policy, [np.arctanh(0.5)])
    outputs(agent.target_critics, [0.0], [0.0])
    for kernel in agent.target_critics.trainable_variables[::2]:
        kernel.assign([[0.0], [0.0], [1.0]])
    many = {
        "next_observation": tf.zeros([500, 2]),
        "reward": tf.zeros([500]),
        "discount": tf.ones([500]),
    }
    actions = agent.target(many).numpy()
    assert actions.min() == pytest.approx(lowest, abs=1e-6)
    assert actions.max() == pytest.approx(highest, abs=1e-6)
    if options["target_noise"]:
        assert abs(actions.mean() - np.clip(0.5, lowest, highest)) < 0.6
        assert actions.std() > 0.1


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_critics_have_weighted_squared_errors_and_absolute_priorities(name):
    agent = continuous(name, prioritized=True)
    outputs(agent.critics, [1.0], [4.0])
    data = steps_of_one_number(target=tf.constant([3.0, -1.0]))
    loss, _ = agent.critic_loss(data)
    squares = [0.5 * (2**2 + 1**2), 0.25 * 0.5 * (2**2 + 5**2)]
    np.testing.assert_allclose(loss, np.mean(squares), rtol=1e-6)
    agent.target = lambda items: data["target"]
    _, errors = agent.learn(steps_of_one_number())
    np.testing.assert_allclose(errors, [(2 + 1) / 2, (2 + 5) / 2], rtol=1e-6)


def test_noise_of_td3_begins_anew_with_episodes_and_is_for_training_only():
    agent = continuous("td3", noise="ornstein_uhlenbeck", noise_std=0.1, start_size=16)
    agent.steps.assign(1000)  # Random actions are over.
    seen, row = tf.zeros([1, 2]), tf.constant([0])
    noise = agent._exploration._state
    for _ in range(5):
        agent.perform(row, seen)
    moved = noise.numpy()
    assert moved.any()
    still = agent.perform(row, seen, training=False)
    assert np.array_equal(still, agent.perform(row, seen, training=False))
    assert np.array_equal(noise, moved)
    agent.begin_episodes(row)
    assert not noise.numpy().any()


def test_targets_of_td3_follow_with_the_policy():
    agent = make("td3", batch(Identity(gs.Box(-2, 1, (1,)))), tau=0.1, policy_delay=2)
    pairs = (agent.target_policy, agent.policy), (agent.target_critics, agent.critics)
    data = steps_of_one_number()
    for update in range(4):
        old = [numbers(target.trainable_variables) for target, _ in pairs]
        agent.updates.assign(update)
        agent.learn(data)
        for before, (target, source) in zip(old, pairs, strict=True):
            after = numbers(target.trainable_variables)
            new = numbers(source.trainable_variables)
            share = 0.0 if update % 2 else 0.1
            for x, y, z in zip(before, new, after, strict=True):
                np.testing.assert_allclose(z, x + share * (y - x), atol=1e-6)
    assert not same(after, new)


def test_target_critics_follow():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("sac", envs, tau=0.1, replay_ratio=1.0)
    old = numbers(agent.target_critics.trainable_variables)
    while agent.updates.numpy() < 1:
        tools.simulate(envs, agent, 1)
    new = numbers(agent.critics.trainable_variables)
    after = numbers(agent.target_critics.trainable_variables)
    for x, y, z in zip(old, new, after, strict=True):
        np.testing.assert_allclose(z, 0.9 * x + 0.1 * y, atol=1e-6)


def test_policy_of_td3_is_delayed():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("td3", envs, policy_delay=3, replay_ratio=1.0)
    policy = numbers(agent.policy.trainable_variables)
    critics = numbers(agent.critics.trainable_variables)
    while agent.updates.numpy() < 2:
        tools.simulate(envs, agent, 1)
    assert same(numbers(agent.policy.trainable_variables), policy)
    assert not same(numbers(agent.critics.trainable_variables), critics)
    tools.simulate(envs, agent, 1)
    assert agent.updates.numpy() == 3
    assert not same(numbers(agent.policy.trainable_variables), policy)


# Refusals.


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("dqn", gs.Box(-1, 1, (2,)), "use algorithm sac, td3 or a policy gradient"),
        ("apex", gs.MultiBinary(2), "use algorithm sac, td3 or a policy gradient"),
        ("sac", gs.Box(-np.inf, np.inf, (2,)), "no floating point Box with finite"),
        ("sac", gs.MultiBinary(2), "use a policy gradient such as ppo"),
        ("td3", gs.Discrete(3), "or dqn for Discrete"),
    ],
)
def test_other_action_spaces_are_refused(name, space, message):
    with pytest.raises(spaces_.UnsupportedSpaceError, match=message):
        CLASSES[name](gs.Box(-1, 1, (2,)), space, 2, 10, CONFIGS[name]())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 64, "start_size": 32}, "batch_size 64 must not be larger"),
        ({"n_step": 0}, "n_step must be positive"),
        ({"capacity": 63}, "batch_size 64 must not be larger .* capacity 63"),
        ({"replay_ratio": -1.0}, "replay_ratio must be at least 0, got -1.0"),
        ({"discount": 1.5}, "discount must be 0 to 1, got 1.5"),
        ({"reward_clip": -1.0}, "reward_clip must be positive, got -1.0"),
        ({"priority_beta": -1.0}, "priority_beta must be at least 0"),
        ({"huber_delta": 0.0}, "huber_delta must be positive, got 0.0"),
        ({"noisy_std": -0.5}, "noisy_std must be at least 0"),
        ({"value_range": (-10.0, np.inf)}, "value_range must be finite"),
        ({"value_range": (1.0, 1.0)}, "value_range must be finite and increasing"),
        ({"network": networks.NetworkConfig.preset("gru")}, "not be recurrent"),
        ({"atoms": 0}, "atoms must be positive"),
    ],
)
def test_impossible_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dqn.Config(**changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("apex", {"noisy_std": 0.5}, "noisy_std explores instead of epsilon"),
        ("td3", {"target_noise": -1.0}, "target_noise must be at least 0"),
        ("td3", {"policy_delay": 0}, "policy_delay must be positive"),
        ("sac", {"initial_temperature": 0.0}, "initial_temperature must be positive"),
    ],
)
def test_impossible_configs_of_others_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[name](**changes)


# Resuming.


@pytest.mark.parametrize(
    "name", ["dqn", "apex", "sac", pytest.param("td3", marks=pytest.mark.slow)]
)
def test_resumed_training_is_the_uninterrupted_one(name, tmp_path):
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))

    def start(folder, steps):
        envs = batch(*(Identity(space) for _ in range(4)))
        options = {"prioritized": name in DISCRETE, "n_step": 2}
        agent = make(name, envs, replay_ratio=0.5, **options)
        schedule = loop.Schedule(steps, 80, 4)
        checkpoints = checkpoint.Checkpoints(folder)
        runner = loop.Loop(envs, agent, schedule, 0, checkpoints)
        if checkpoints.names():
            runner.restore()
        return agent, runner

    agent, runner = start(tmp_path / "a", 320)
    whole = [x.metrics for x in runner.run() if x.finished]
    _, runner = start(tmp_path / "b", 160)
    parts = [x.metrics for x in runner.run() if x.finished]
    other, runner = start(tmp_path / "b", 320)
    parts += [x.metrics for x in runner.run() if x.finished]
    assert parts == whole
    assert equal(stored(agent, tmp_path), stored(other, tmp_path))


@pytest.mark.slow
def test_a_large_memory_resumes_exactly(tmp_path, monkeypatch):
    """With 100,000 transitions, of which the runs overwrite some."""
    monkeypatch.setattr(checkpoint, "BLOCK_BYTES", 1 << 16)

    def start(folder, steps):
        envs = batch(*(gymnasium.make("CartPole-v1") for _ in range(50)))
        agent = make(
            "dqn",
            envs,
            capacity=100_000,
            start_size=90_000,
            replay_ratio=0.01,
            prioritized=True,
            n_step=3,
        )
        schedule = loop.Schedule(steps, 20_000, 50)
        checkpoints = checkpoint.Checkpoints(folder)
        runner = loop.Loop(envs, agent, schedule, 0, checkpoints)
        if checkpoints.names():
            runner.restore()
        return agent, runner

    agent, runner = start(tmp_path / "a", 140_000)
    whole = [x.metrics for x in runner.run() if x.finished]
    assert int(agent.memory.size) > 95_000
    assert int(agent.updates) > 300
    parts = []
    for steps in (80_000, 120_000, 140_000):
        _, runner = start(tmp_path / "b", steps)  # This one dies within a phase.
        for _, report in zip(range(4), runner.run(), strict=False):
            assert not report.finished
        assert runner.step % 20_000
        other, runner = start(tmp_path / "b", steps)
        parts += [x.metrics for x in runner.run() if x.finished]
    assert parts == whole
    assert equal(stored(agent, tmp_path), stored(other, tmp_path))
    newest = max((tmp_path / "b").glob("step-*"))
    assert len(list(newest.glob("*.block"))) > 50


# Learning.


RAINBOW = {
    **{"atoms": 11, "value_range": (0.0, 3.0), "noisy_std": 0.5, "dueling": True},
    **{"prioritized": True, "n_step": 3},
}
DDPG = {
    **{"twin": False, "policy_delay": 1, "target_noise": 0.0},
    **{"noise": "ornstein_uhlenbeck"},
}


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    envs.discontinue(np.arange(len(envs)))
    result = tools.simulate(envs, agent, steps, training=False)
    return result["score"].numpy()[result["done"].numpy()].mean()


@pytest.mark.parametrize(
    ("name", "space", "changes"),
    [
        ("dqn", gs.Discrete(2, start=3), {}),
        ("dqn", gs.MultiDiscrete([2, 2]), {}),
        ("dqn", gs.Discrete(2), RAINBOW),
        ("apex", gs.Discrete(2), {}),
        ("sac", gs.Box(-3, 1, (1,)), {}),
        ("sac", gs.Discrete(2), {}),
        ("td3", gs.Box(-3, 1, (1,)), {}),
        ("td3", gs.Box(-3, 1, (1,)), {"noise": "parameters"}),
        ("td3", gs.Box(-3, 1, (1,)), DDPG),
    ],
)
def test_identity_is_learned(name, space, changes):
    envs = batch(*(Identity(space) for _ in range(4)))
    gate = 9.0
    assert score(envs, mock_algorithm.MockAlgorithm(envs.action_space), 50) < gate
    fast = {"type": "adam", "learning_rate": 3e-3}
    options = {"optimizer": fast}
    if name not in DISCRETE:
        options["critic_optimizer"] = fast
    if name == "sac":
        options |= {"temperature_optimizer": fast, "initial_temperature": 0.1}
    agent = make(
        name,
        envs,
        batch_size=64,
        start_size=200,
        capacity=4000,
        discount=0.5,
        replay_ratio=0.5,
        **options,
        **changes,
    )
    tools.simulate(envs, agent, 700)
    assert score(envs, agent, 50) >= gate


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_value_of_an_endless_reward(name):
    """Fifty if episodes are cut off, less than eight if they end."""
    found = []
    for truncate in (True, False):
        envs = batch(*(Endless(truncate, name == "dqn") for _ in range(8)))
        fast = {"type": "adam", "learning_rate": 3e-3}
        options = {"optimizer": fast}
        if name == "dqn":
            options |= {"target_period": 10, "huber_delta": None}
        else:
            options |= {
                "critic_optimizer": fast,
                "initial_temperature": 1e-3,
                "temperature_optimizer": {"type": "sgd", "learning_rate": 0.0},
                "tau": 0.05,
            }
        agent = make(
            name,
            envs,
            batch_size=64,
            start_size=200,
            capacity=4000,
            discount=0.98,
            n_step=4,
            replay_ratio=0.5,
            **options,
        )
        tools.simulate(envs, agent, 500)
        seen = tf.random.stateless_uniform([100, 2], [1, 2], -1.0, 1.0)
        if name == "dqn":
            values = tf.reduce_max(agent.expected(agent.network(seen)), -1)
        else:
            values, _ = agent.evaluate(agent.critics, seen)
        found.append(float(tf.reduce_mean(values)))
    assert abs(found[0] - 50) < 2
    assert found[1] < 8


def test_everything_compiles_to_one_program():
    for name in ("dqn", "apex", "sac"):
        discrete = name in DISCRETE
        env = functional.CartPole() if discrete else functional.Pendulum()
        envs = compiled.Compiled(env, 4)
        agent = make(name, envs, prioritized=discrete, jit=True, replay_ratio=0.5)
        tools.simulate(envs, agent, 20)
        assert agent.updates.numpy() > 0
        assert np.isfinite(list(agent.metrics.result().values())).all()


def test_squashed_policy_needs_a_bounded_box():
    assert soft_actor_critic.box_size(gs.Box(-2, 2, (2, 3))) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cartpole_dqn", "cartpole_apex", "pendulum_sac", "pendulum_td3"]
)
def test_presets_learn(name):
    config = configs.load(name)
    envs = runs.environments(config)
    gate = 475 if name.startswith("cartpole") else -200
    try:
        chance = mock_algorithm.MockAlgorithm(envs.action_space)
        assert score(envs, chance, 500) < gate
        agent = runs.algorithm(config, runs.describe(config))
        envs.discontinue(np.arange(len(envs)))
        tools.simulate(envs, agent, config.train.steps // len(envs))
        assert score(envs, agent, 500) >= gate
    finally:
        envs.close()
