"""Agents that other programs drive by `act` and `observe`."""

import collections
import dataclasses
import gc
import itertools
import pickle
import weakref

import gymnasium
import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import agent as agent_
from agents import networks, optimizers, tools
from agents.environments import make
from agents.experiments import named, runs
from agents.testing import algorithms
from agents.tools import checkpoint, errors, files, spaces
from agents.tools import config as config_

QUICK = ("algorithm.jit=false", "algorithm.network={layers: [16]}")
REPLAY = (
    *QUICK,
    "algorithm.capacity=500",
    "algorithm.start_size=32",
    "algorithm.batch_size=16",
    "algorithm.replay_ratio=0.5",
)
KINDS = {
    "whole episodes": (
        "cartpole",
        (*QUICK, "algorithm.update_every=4", "algorithm.epochs=3"),
    ),
    "unrolls": ("cartpole_a2c", QUICK),
    "recurrent": (
        "cartpole_a2c",
        (
            *("algorithm.jit=false", "algorithm.unroll_length=16"),
            "algorithm.network={layers: [8, {type: gru, units: 8}]}",
            "algorithm.chunk_length=8",
        ),
    ),
    "queue": ("cartpole_impala", (*QUICK, "algorithm.queue_size=1")),
    "apex": ("cartpole_apex", REPLAY),
    "dqn": ("cartpole_dqn", (*REPLAY, "algorithm.n_step=3")),
    "sac": ("pendulum_sac", REPLAY),
}


def load(kind, num_agents):
    name, overrides = KINDS[kind]
    limit = ("environment.max_length=30", "environment.backend=serial")
    agents = (f"environment.num_agents={num_agents}", "environment.action_lag=false")
    return named.load(name, [*overrides, *limit, *agents])


def drive(agent, envs, steps, seeds):
    """Run environments one after the other, all rows at every call."""
    single = len(envs) == 1

    def stack(values):
        return values[0] if single else np.stack(values)

    observations = [
        env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)
    ]
    for _ in range(steps):
        actions = agent.act(stack(observations))
        actions = [actions] if single else actions
        results = [env.step(x) for env, x in zip(envs, actions, strict=True)]
        after, reward, terminated, truncated, _ = map(list, zip(*results, strict=True))
        agent.observe(
            stack(reward),
            stack(terminated),
            stack(truncated),
            next_observation=stack(after),
        )
        observations = [
            env.reset()[0] if over else x
            for env, x, over in zip(
                envs, after, np.logical_or(terminated, truncated), strict=True
            )
        ]


@pytest.mark.quick("unrolls-1", "dqn-1")
@pytest.mark.parametrize(("kind", "num_agents"), [*itertools.product(KINDS, (1, 3))])
def test_same_as_simulate(kind, num_agents):
    config = load(kind, num_agents)
    steps, seeds = 96, np.arange(7, 7 + num_agents)
    env = runs.environments(config)
    description = runs.describe(config)
    expected = runs.algorithm(config, description)
    env.discontinue(seeds)
    tools.simulate(env, expected, steps)
    env.close()
    agent = agent_.Agent.create(
        config, description.observation_space, description.action_space, num_agents
    )
    create = make.constructor(config.environment)
    envs = [create() for _ in range(num_agents)]
    drive(agent, envs, steps, seeds)
    agent.reset()
    assert int(agent.algorithm.steps) == int(expected.steps) == steps * num_agents
    before = runs.algorithm(config, description).acting()
    changed = 0
    for one, other, old in zip(
        agent.algorithm.acting(), expected.acting(), before, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        changed += not np.array_equal(one, old)
    assert changed > 2


@pytest.fixture
def cartpole():
    """Agent for two rows of CartPole."""
    env = gymnasium.make("CartPole-v1")
    config = {"type": "dqn", "jit": False, "network": {"layers": [8]}}
    return agent_.Agent.create(config, env.observation_space, env.action_space, 2)


def test_strictly_in_turns(cartpole):
    zeros = np.zeros([2, 4], np.float32)
    with pytest.raises(agent_.AgentError, match=r"agent 0, 1 has not acted; call act"):
        cartpole.observe([0, 0], [False, False])
    cartpole.act(zeros[0], 1)
    with pytest.raises(agent_.AgentError, match="agent 1 has acted already; call obs"):
        cartpole.act(zeros)
    with pytest.raises(agent_.AgentError, match="agent 0 has not acted"):
        cartpole.observe([0, 0], [False, False])
    cartpole.observe(0.0, False, agent_indices=1)
    cartpole.act(zeros)


@pytest.mark.parametrize(
    ("observation", "indices", "message"),
    [
        (
            np.zeros([2, 3]),
            None,
            r"observation must have the shape \(2, 4\), got \(2, 3",
        ),
        (np.zeros([4]), None, r"observation must have the shape \(2, 4\), got \(4,\)"),
        (np.zeros([1, 4]), 0, r"observation must have the shape \(4,\), got \(1, 4\)"),
        (
            {"x": np.zeros([2, 4])},
            None,
            r"another structure.*got \{x: ndarray \[2, 4\]",
        ),
        (np.zeros([2, 4], complex), None, "must be float32, got complex128"),
        (np.zeros([4]), 2, "agent_indices must be from 0 to 1, got 2"),
        (np.zeros([2, 4]), [0, 0], "name a row twice"),
        (np.zeros([2, 4]), [0.0, 1.0], "agent_indices must be from 0 to 1"),
    ],
)
def test_wrong_observations(cartpole, observation, indices, message):
    with pytest.raises(agent_.AgentError, match=message):
        cartpole.act(observation, indices)


MASKED = gs.Dict(
    x=gs.Box(-1, 1, (2,)), word=gs.Discrete(3, start=1), action_mask=gs.MultiBinary(2)
)
VALID = {"x": [0.5, -0.5], "word": 2, "action_mask": [1, 1]}
WRONG_OBSERVATIONS = {
    "x must be finite, got nan": {**VALID, "x": [0.5, np.nan]},
    "x must be finite, got inf": {**VALID, "x": [1e300, 0.5]},
    "x must be float32, got object": {**VALID, "x": [None, 0.5]},
    "x must have the shape": {**VALID, "x": [[0.5], [0.5, 0.5]]},
    "word must be from 1 to 3, got 4": {**VALID, "word": 4},
    "word must be int64, got float64": {**VALID, "word": 1.5},
    "action_mask must be from 0 to 1, got 2": {**VALID, "action_mask": [2, 1]},
    "agent 0: .*observation action_mask allows no": {**VALID, "action_mask": [0, 0]},
    "another structure": None,
}
WRONG_FACTS = {
    "reward must be finite, got nan": {"reward": np.nan},
    "reward must be finite, got inf": {"reward": 1e300},
    "reward must be float32, got <U1": {"reward": "1"},
    "reward must be float32, got object": {"reward": None},
    "reward must have the shape": {"reward": [1.0, 2.0]},
    "terminated must be true or false, got 'no'": {"terminated": "no"},
    "terminated must be true or false, got nan": {"terminated": np.nan},
    "terminated must be true or false, got None": {"terminated": None},
    "truncated must be true or false, got 2": {"truncated": 2},
}


@pytest.mark.quick("dqn")
@pytest.mark.parametrize(
    "config",
    [
        {"type": "dqn", "capacity": 50, "start_size": 8, "batch_size": 8, "n_step": 2},
        {"type": "a2c", "unroll_length": 4},
    ],
    ids=["dqn", "a2c"],
)
def test_what_is_refused_changes_nothing(config):
    """Further actions and all that is learned are the same, bit for bit."""
    values = {"algorithm": {**config, "jit": False, "network": [8]}}
    values["preprocessing"] = {"x": ["normalize"]}
    ours, theirs = (
        agent_.Agent.create(values, MASKED, gs.Discrete(2)) for _ in range(2)
    )

    def refuse(message, call, *args, **kwargs):
        with pytest.raises(agent_.AgentError, match=message):
            call(*args, **kwargs)

    random = np.random.default_rng(0)
    for step in range(15):
        seen = {**VALID, "x": random.uniform(-1, 1, 2), "word": 1 + step % 3}
        if step in (0, 3, 9):
            for message, wrong in WRONG_OBSERVATIONS.items():
                refuse(message, ours.act, wrong)
        assert ours.act(seen) == theirs.act(seen)
        facts = {"reward": float(step), "terminated": step % 5 == 4, "truncated": 0}
        if step in (0, 4):
            for message, wrong in WRONG_FACTS.items():
                refuse(message, ours.observe, **{**facts, **wrong})
            for message, wrong in WRONG_OBSERVATIONS.items():
                if wrong and step == 0:
                    refuse(message, ours.observe, **facts, next_observation=wrong)
        for agent in (ours, theirs):
            agent.observe(**facts)
    before, after = (algorithms._values(x.algorithm) for x in (theirs, ours))
    tf.nest.map_structure(np.testing.assert_array_equal, before, after)
    assert int(ours.algorithm.updates) > 0


def test_batches_that_are_refused_change_nothing():
    config = {"type": "dqn", "capacity": 50, "start_size": 8, "batch_size": 8}
    config |= {"jit": False, "network": [8]}
    agent = agent_.Agent.create(config, MASKED, gs.Discrete(2, start=1))
    seen = {name: np.stack([x] * 3) for name, x in VALID.items()}
    batch = {"observation": seen, "action": [1, 2, 1], "reward": [1.0, 2.0, 3.0]}
    batch |= {"terminated": [0, 0, 1], "truncated": False, "next_observation": seen}
    nan = {**seen, "x": np.full([3, 2], np.nan)}
    forbidding = {**seen, "action_mask": np.array([[1, 1], [1, 0], [1, 1]])}
    wrong = {
        "observation/x must be finite": {"observation": nan},
        "next_observation/x must be finite": {"next_observation": nan},
        "reward must be finite, got inf": {"reward": [1.0, np.inf, 2.0]},
        "terminated must be true or false": {"terminated": ["no"] * 3},
        "action must be from 1 to 2, got 3": {"action": [1, 3, 1]},
        "action 2 of step 1 is not allowed": {"observation": forbidding},
    }
    before = algorithms._values(agent.algorithm)
    for message, change in wrong.items():
        with pytest.raises(agent_.AgentError, match=message):
            agent.update({**batch, **change})
    after = algorithms._values(agent.algorithm)
    tf.nest.map_structure(np.testing.assert_array_equal, before, after)
    assert np.isfinite(agent.update(batch)["loss"])


def test_weights_that_are_refused_change_nothing(cartpole):
    before = cartpole.get_weights()
    last = next(i for i in reversed(range(len(before))) if before[i].dtype.kind == "f")
    for message, value in (
        (rf"weights\[{last}\] must be finite, got nan", np.nan),
        (rf"weights\[{last}\] must be float32, got <U1", "x"),
    ):
        given = [x + 1 for x in before]
        given[last] = np.full(before[last].shape, value)
        with pytest.raises(agent_.AgentError, match=message):
            cartpole.set_weights(given)
    for ours, theirs in zip(cartpole.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_wrong_rewards(cartpole):
    cartpole.act(np.zeros([2, 4]))
    with pytest.raises(agent_.AgentError, match=r"reward must have the shape \(2,\)"):
        cartpole.observe([1, 2, 3], False)


def test_rows_one_by_one_remember_what_rows_together_do():
    space, actions = gs.Box(-9, 9, [1]), gs.Discrete(2)
    config = {"type": "dqn", "jit": False, "capacity": 400, "start_size": 400}
    config |= {"network": {"layers": [8]}, "batch_size": 4}
    both, each = (agent_.Agent.create(config, space, actions, 2) for _ in range(2))
    for step in range(40):
        seen = np.array([[step % 7], [step % 5 - 9]], np.float32)
        over = np.array([step % 7 == 6, step % 5 == 4])
        both.act(seen)
        both.observe(seen[:, 0], over)
        for row in (1, 0):
            each.act(seen[row], row)
            each.observe(seen[row, 0], over[row], agent_indices=row)
    both.reset()
    each.reset()
    contents = []
    for agent in (both, each):
        items = agent.algorithm.memory.sample(2000, tf.constant([1, 2]))
        rows = [items[x] for x in ("observation", "reward", "discount")]
        rows.append(items["next_observation"] * items["discount"][:, None])
        table = np.concatenate([np.reshape(x, [2000, -1]) for x in rows], 1)
        contents.append(np.unique(table, axis=0))
    np.testing.assert_array_equal(*contents)
    assert len(contents[0]) == 7 + 5


def test_rows_with_unrolls_must_step_equally_often():
    config = {"type": "a2c", "unroll_length": 4, "jit": False}
    space, actions = gs.Box(-9, 9, [1]), gs.Discrete(2)
    agent = agent_.Agent.create(config, space, actions, 2)
    for _ in range(5):
        agent.act([0.0], 0)
        agent.observe(0.0, False, agent_indices=0)
    with pytest.raises(agent_.AgentError, match="agent 0 is ahead of what a2c can rem"):
        agent.act([0.0], 0)


def test_independent_acts_leave_no_trace():
    env = gymnasium.make("CartPole-v1")
    config = load("recurrent", 1)
    ours, theirs = (
        agent_.Agent.create(config, env.observation_space, env.action_space)
        for _ in range(2)
    )
    generator = np.random.default_rng(0)
    for step in range(12):
        observation = generator.normal(size=4)
        looks = [ours.act(observation, independent=True) for _ in range(step % 3)]
        assert len(set(looks)) < 2
        assert ours.act(observation) == theirs.act(observation)
        ours.observe(1.0, step % 5 == 4)
        theirs.observe(1.0, step % 5 == 4)
    state = [agent.algorithm.running_state([0]) for agent in (ours, theirs)]
    tf.nest.map_structure(np.testing.assert_array_equal, *state)
    assert int(ours.algorithm.steps) == int(theirs.algorithm.steps) == 11


@pytest.mark.quick("2")
@pytest.mark.parametrize("stack", [None, 2])
def test_training_changes_within_an_episode(stack):
    """Only what happened is remembered; between the parts there is no transition."""
    space = gs.Box(-np.inf, np.inf, (stack, 1) if stack else (1,))
    settings = {
        **{"type": "dqn", "capacity": 100, "batch_size": 1, "start_size": 90},
        **{"n_step": 3, "discount": 0.5, "stack": stack, "jit": False},
    }
    agent = agent_.Agent.create(settings, space, gs.Discrete(2))

    def seen(time):
        frames = [max(time - age, 0) for age in range((stack or 1) - 1, -1, -1)]
        return np.array(frames, np.float32).reshape(space.shape)

    for time in range(15):
        agent.act(seen(time), training=not 4 <= time < 9)
        agent.observe(float(time), False)
    agent.act(seen(15))  # Shows what followed.
    items = agent.algorithm.memory.sample(500, tf.constant([1, 2]))
    found = {
        int(before[-1].item()): (before.tolist(), reward, discount, after.tolist())
        for before, reward, discount, after in zip(
            items["observation"].numpy(),
            items["reward"].numpy(),
            items["discount"].numpy(),
            items["next_observation"].numpy(),
            strict=True,
        )
    }
    expected = {}
    for first, end in ((0, 4), (1, 4), (2, 4), (3, 4), (9, 15), (10, 15), (11, 15)):
        count = min(3, end - first)
        reward = sum(0.5**i * (first + i) for i in range(count))
        after = seen(first + count).tolist()
        expected[first] = (seen(first).tolist(), reward, 0.5**count, after)
    expected[12] = (seen(12).tolist(), 12 + 6.5 + 3.5, 0.125, seen(15).tolist())
    assert found == expected


@pytest.mark.slow
def test_recurrent_state_when_training_changes_within_an_episode():
    """It goes on in evaluation; what is learned from begins with none."""
    env = gymnasium.make("CartPole-v1")
    config = load("recurrent", 1)
    agent = agent_.Agent.create(config, env.observation_space, env.action_space)
    observations = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
    rows = tf.constant([0])

    def following(state, observation):
        return agent.algorithm.decide(observation[None], state)[1]

    for index, observation in enumerate(observations):
        training = not 3 <= index < 6
        before = agent.algorithm.running_state(rows)
        if index in (0, 6):
            before = agent.algorithm.initial_state(1)
        agent.act(observation, training=training)
        agent.observe(1.0, False)
        after = agent.algorithm.running_state(rows)
        tf.nest.map_structure(
            lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
            after,
            following(before, observation),
        )


def test_nested_observations_and_actions():
    observation = gs.Dict(
        {"image": gs.Box(0, 255, [4, 4, 1], np.uint8), "word": gs.Discrete(5)}
    )
    action = gs.Dict({"turn": gs.Box(-1, 1, [2]), "fire": gs.Discrete(2)})
    config = {"type": "ppo", "memory": "unrolls", "unroll_length": 4}
    config |= {"jit": False, "minibatch_size": 4}
    agent = agent_.Agent.create(config, observation, action)
    for step in range(9):
        choice = agent.act(observation.sample())
        assert set(choice) == {"turn", "fire"}
        assert choice["turn"].shape == (2,)
        assert choice["fire"] in (0, 1)
        agent.observe(1.0, step % 5 == 4)
    assert int(agent.algorithm.steps) == 8
    with pytest.raises(
        agent_.AgentError, match=r"observation/image must have the shape \(4, 4, 1\)"
    ):
        agent.act({"image": np.zeros([4, 4], np.uint8), "word": 1})
    with pytest.raises(agent_.AgentError, match="leaves observation/image, obs.*word"):
        agent.act({"image": np.zeros([4, 4, 1], np.uint8)})


def test_acts_the_same_after_loading(cartpole, tmp_path):
    for _ in range(5):
        cartpole.act(np.ones([2, 4]))
        cartpole.observe([1, 1], [False, True])
    cartpole.reset()
    cartpole.save(tmp_path / "agent")
    again = agent_.Agent.load(tmp_path / "agent")
    assert again.config == cartpole.config
    for one, other in zip(again.get_weights(), cartpole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(again.algorithm.memory.size) == int(cartpole.algorithm.memory.size) > 0
    some = np.random.default_rng(0).normal(size=[2, 4])
    np.testing.assert_array_equal(
        again.act(some, training=False), cartpole.act(some, training=False)
    )


@pytest.mark.parametrize("name", ["num_agents", "max_length"])
def test_sizes_are_positive_integers_of_any_type(name, tmp_path):
    config = {"type": "a2c", "jit": False, "network": [8]}
    found = gs.Box(-1, 1, (2,)), gs.Discrete(2)
    for wrong in (0, -1, 2.5, "2"):
        with pytest.raises(agent_.AgentError, match=f"{name} must be a positive"):
            agent_.Agent.create(config, *found, **{name: wrong})
    agent = agent_.Agent.create(config, *found, **{name: np.int64(2)})
    (tmp_path / "file").touch()
    agent.save(tmp_path / "agent")
    assert agent_.Agent.load(tmp_path / "agent").num_agents == agent.num_agents
    with pytest.raises(errors.Mistake, match="cannot write to"):
        agent.save(tmp_path / "file" / "agent")


def test_updates_use_the_episodes_that_have_ended(tmp_path):
    """Also the last step of one whose row waits for the others, and only once."""
    space = gs.Box(-9, 9, (1,), np.float32)
    config = {"type": "ppo", "memory": "episodes", "update_every": 5, "jit": False}
    agent = agent_.Agent.create(config, space, gs.Discrete(2), 2, max_length=9)
    for over in (False, False, True):
        agent.act(np.zeros([2, 1]))
        agent.observe([1, 1], [over, False])
    agent.save(tmp_path / "agent")
    assert agent.algorithm.steps == 4  # Saving changes nothing.
    assert agent.update()["policy_loss"] != 0
    assert agent.algorithm.steps == 5
    agent.act(np.zeros([2, 1]))
    assert agent.algorithm.steps == 6


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_weights_of_others_bring_no_updates_and_take_none(kind):
    spaces_ = (
        gs.Box(-1, 1, (2,)),
        gs.Box(-1, 1, (1,)) if kind == "td3" else gs.Discrete(2),
    )
    config = {"type": kind, "capacity": 100, "start_size": 20, "batch_size": 8}
    config |= {"replay_ratio": 0.5, "jit": False, "network": [8]}
    ours, theirs = (agent_.Agent.create(config, *spaces_) for _ in range(2))

    def run(agent, steps):
        before = int(agent.algorithm.updates)
        for _ in range(steps):
            agent.act(np.ones(2, np.float32))
            agent.observe(1.0, False)
        return int(agent.algorithm.updates) - before

    start = ours.get_weights()
    run(theirs, 300)
    ours.set_weights(theirs.get_weights())
    assert run(ours, 15) == 0  # Not enough in its own memory.
    assert run(ours, 105) == 50
    ours.set_weights(start)  # An earlier state of training.
    assert run(ours, 20) == 10


def test_weights_move_between_agents(cartpole):
    env = gymnasium.make("CartPole-v1")
    config = {"type": "dqn", "jit": False, "network": {"layers": [8]}}
    other = agent_.Agent.create(
        {"algorithm": config, "seed": 5}, env.observation_space, env.action_space
    )
    other.set_weights(cartpole.get_weights())
    for one, two in zip(other.get_weights(), cartpole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(agent_.AgentError, match="weights must have the shapes"):
        other.set_weights([np.zeros(3)])


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ("cartpol", config_.ConfigError, "cartpole"),
        ({"type": "dqm"}, config_.ConfigError, "dqn"),
        ({"type": "ppo"}, agent_.AgentError, "whole episodes.*give max_length"),
        (5, config_.ConfigError, "a config is the name"),
        (
            networks.NetworkConfig(),
            config_.ConfigError,
            "NetworkConfig needs a field 'type', which",
        ),
        (
            {"algorithm": {"type": "dqn"}, "environment": "CartPole-v1"},
            *(config_.ConfigError, "'environment'"),
        ),
        (
            {"algorithm": {"type": "dqn"}, "hindsight": {"share": 0.8}},
            *(config_.ConfigError, "declare hindsight.outcome or environment.id"),
        ),
    ],
)
def test_wrong_configs(config, error, message):
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(error, match=message):
        agent_.Agent.create(config, env.observation_space, env.action_space)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gs.Box(-1, 1, (0,)), "must hold a number"),
        (gs.Dict({}), "must hold a number"),
        (gs.Dict({1: gs.Discrete(2), "a": gs.Discrete(2)}), "1, 'a'. cannot be sorted"),
    ],
)
@pytest.mark.parametrize("kind", ["a2c", "dqn"])
def test_spaces_that_nothing_can_learn_from_are_refused(kind, space, message):
    for both in ((space, gs.Discrete(2)), (gs.Box(-1, 1, (3,)), space)):
        with pytest.raises(spaces.UnsupportedSpaceError, match=f"{message}|is empty"):
            agent_.Agent.create({"type": kind}, *both)


def test_nothing_to_load(tmp_path):
    with pytest.raises(agent_.AgentError, match="no agent can be loaded from"):
        agent_.Agent.load(tmp_path)


def test_runs_are_no_saved_agents(tmp_path):
    checkpoint.Checkpoints(tmp_path / "checkpoints").save(0, {}, {"loop": 1})
    with pytest.raises(agent_.AgentError, match="but of a run; `agents export` writes"):
        agent_.Agent.load(tmp_path)


def test_one_trace_for_all_calls(cartpole, monkeypatch):
    traces = collections.Counter()

    def counted(name, call):
        def traced(*args, **kwargs):
            traces[name] += 1
            return call(*args, **kwargs)

        monkeypatch.setattr(cartpole.algorithm, name, traced)

    for name in ("perform", "experience"):
        counted(name, getattr(cartpole.algorithm, name))
    generator = np.random.default_rng(0)
    for _ in range(300):
        rows = [0, 1] if generator.random() < 0.5 else int(generator.integers(2))
        size = np.size(rows)
        shape = [2, 4] if size == 2 else [4]
        cartpole.act(generator.normal(size=shape), rows)
        over = generator.random(size) < 0.1
        cartpole.observe(np.ones(size), over, agent_indices=rows)
    assert traces == {"perform": 2, "experience": 2}  # Alone, and one after the other.


def test_what_is_saved_replaces_what_was_saved(cartpole, tmp_path):
    for step in range(3):
        cartpole.act(np.full([2, 4], step))
        cartpole.observe(np.ones(2), False)
    cartpole.save(tmp_path)
    env = gymnasium.make("CartPole-v1")
    spaces = env.observation_space, env.action_space
    other = agent_.Agent.create("debug", *spaces)
    other.save(tmp_path)
    loaded = agent_.Agent.load(tmp_path)
    assert loaded.num_agents == 1
    for ours, theirs in zip(loaded.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class OwnBox(gs.Box):
    """A class that is not Gymnasium's."""


@pytest.fixture
def forbid_pickle(monkeypatch):
    """Make it an error to read what is pickled."""

    def fail(*_, **__):
        raise AssertionError("It is pickled.")

    monkeypatch.setattr(pickle, "loads", fail)
    monkeypatch.setattr(pickle, "load", fail)


@pytest.mark.usefixtures("forbid_pickle")
def test_spaces_of_gymnasium_are_loaded_without_pickle(tmp_path):
    observation = gs.Dict(
        image=gs.Box(0, 255, (4, 4, 1), np.uint8),
        speed=gs.Box(
            np.array([-np.inf, 0.1]), np.array([3.0, np.inf]), dtype=np.float64
        ),
        parts=gs.Tuple([gs.MultiDiscrete([3, 2]), gs.MultiBinary(2)]),
    )
    action = gs.Tuple([gs.Discrete(3, start=-1), gs.Box(-1, 2, (2,))])
    config = {"type": "a2c", "jit": False, "network": {"layers": [4]}}
    agent_.Agent.create(config, observation, action).save(tmp_path)
    loaded = agent_.Agent.load(tmp_path)
    assert loaded.action_space == action
    assert loaded.observation_space == observation
    speed = loaded.observation_space["speed"]
    for ours, theirs in ((speed.low, [-np.inf, 0.1]), (speed.high, [3.0, np.inf])):
        assert ours.dtype == np.float64
        np.testing.assert_array_equal(ours, theirs)
    assert action.contains(loaded.act(observation.sample()))


def test_spaces_of_other_classes_are_pickled_and_need_permission(tmp_path):
    config = {"type": "dqn", "jit": False, "network": {"layers": [4]}}
    agent_.Agent.create(config, OwnBox(-1, 2, (3,)), gs.Discrete(2)).save(tmp_path)
    with pytest.raises(agent_.AgentError) as error:
        agent_.Agent.load(tmp_path)
    assert str(error.value).startswith(f"no agent can be loaded from {tmp_path}: ")
    assert "OwnBox is pickled" in str(error.value)
    assert "give allow_pickle=True if you trust it" in str(error.value)
    assert "\n" not in str(error.value)
    loaded = agent_.Agent.load(tmp_path, allow_pickle=True)
    assert type(loaded.observation_space) is OwnBox


def test_damaged_agents_are_refused_in_one_line(cartpole, tmp_path):
    cartpole.save(tmp_path)
    found = sorted(x for x in tmp_path.rglob("*") if x.is_file())
    assert len(found) > 5
    for path in found:
        content = path.read_bytes()
        for damaged in (None, b"", content[: len(content) // 2], b"\xff{" + content):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(agent_.AgentError) as error:
                agent_.Agent.load(tmp_path)
            assert str(error.value).startswith(
                f"no agent can be loaded from {tmp_path}"
            )
            assert "\n" not in str(error.value)
            path.write_bytes(content)
    agent_.Agent.load(tmp_path)


def test_agents_are_not_saved_where_something_else_is(cartpole, tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path / "checkpoints")
    name = checkpoints.save(7, {"x": tf.Variable(1)}, {"step": 7})
    for function in (cartpole.save, agent_.Agent.load):
        with pytest.raises(agent_.AgentError, match="checkpoints is not that of an ag"):
            function(tmp_path)
    assert checkpoints.names() == [name]


@pytest.mark.parametrize(
    ("section", "changes", "key"),
    [
        ("environment", {"id": lambda: None}, "environment.id"),
        ("environment", {"kwargs": {"a": {"b": [np.sum]}}}, "environment.kwargs.a.b"),
        (
            "algorithm",
            {"optimizer": optimizers.create("adam", "")},
            "algorithm.optimizer",
        ),
    ],
)
def test_configs_with_objects_are_not_saved(
    cartpole, section, changes, key, tmp_path, monkeypatch
):
    config = cartpole.config
    changed = dataclasses.replace(getattr(config, section), **changes)
    config = dataclasses.replace(config, **{section: changed})
    monkeypatch.setattr(cartpole, "config", config)
    message = f"cannot save config key '{key}', which is .*; describe it by text"
    with pytest.raises(agent_.AgentError, match=message) as error:
        cartpole.save(tmp_path / "agent")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_the_agent_that_was_saved(cartpole, tmp_path, full_disk):
    cartpole.save(tmp_path)
    message = r"needs \d.* MB, and .* are free"
    with full_disk(2000), pytest.raises(files.WriteError, match=message):
        cartpole.save(tmp_path)
    loaded = agent_.Agent.load(tmp_path)
    for ours, theirs in zip(loaded.get_weights(), cartpole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    cartpole.save(tmp_path)
    assert [x.name for x in tmp_path.iterdir()] == ["checkpoints"]


def test_one_row_may_be_abandoned(cartpole):
    cartpole.act(np.zeros([2, 4]))
    cartpole.reset(1)
    cartpole.observe(1.0, False, agent_indices=0)
    assert cartpole.act(np.zeros(4), 1) in (0, 1)


def test_episodes_that_begin_with_what_the_last_one_ended_with():
    env = gymnasium.make("CartPole-v1")
    spaces = env.observation_space, env.action_space
    agent = agent_.Agent.create(load("recurrent", 2), *spaces, num_agents=2)
    states = []
    for terminated in ([False, False], [True, False], [False, False]):
        agent.act(np.ones([2, 4]))
        states.append(
            [x.numpy() for x in tf.nest.flatten(agent.algorithm.running_state([0, 1]))]
        )
        agent.observe(np.ones(2), terminated)
    for first, second, third in zip(*states, strict=True):
        np.testing.assert_allclose(third[0], first[0], rtol=1e-6)
        assert not np.allclose(second[0], first[0])
        assert not np.allclose(third[1], first[1])


def learn_once(config, discrete=True):
    """Weak references to an agent that has learned, and to what it is made of."""
    action = gs.Discrete(2) if discrete else gs.Box(-1, 1, (1,))
    config = {**config, "jit": False, "network": [8]}
    agent = agent_.Agent.create(config, gs.Box(-1, 1, (2,)), action)
    for step in range(12):
        agent.act([0.5, -0.5])
        agent.observe(1.0, step % 5 == 4)
    learner = agent.algorithm
    assert int(learner.updates) > 0
    parts = agent, learner, learner.memory, *learner.acting()
    return [weakref.ref(x) for x in parts]


REPLAYS = {"capacity": 50, "start_size": 8, "batch_size": 8, "replay_ratio": 0.25}
DISCARDED = {
    "dqn": {"type": "dqn", **REPLAYS},
    "sac": {"type": "sac", **REPLAYS},
    "a2c": {"type": "a2c", "unroll_length": 4},
}


@pytest.mark.parametrize(
    "kind",
    ["dqn", *(pytest.param(x, marks=pytest.mark.slow) for x in ("sac", "a2c"))],
)
def test_agents_that_are_discarded_are_gone(kind):
    """Their graphs, too, and TensorFlow has met all names of variables before."""

    def graphs():
        gc.collect()
        return sum(isinstance(x, tf.Graph) for x in gc.get_objects())

    learn_once(DISCARDED[kind], kind != "sac")
    before = graphs()
    parts = learn_once(DISCARDED[kind], kind != "sac")
    assert graphs() == before
    assert [x() for x in parts] == [None] * len(parts)


@pytest.mark.parametrize("name", ["pendulum_sac", "cartpole_dqn", "cartpole_masked"])
def test_variables_have_no_names_that_other_agents_lack(name):
    """For each one TensorFlow would keep memory."""
    config = named.load(name)
    description = runs.describe(config)
    spaces = description.observation_space, description.action_space
    names = []
    for _ in range(2):
        agent = agent_.Agent.create(config, *spaces)
        learner = agent.algorithm
        found = [*learner.acting(), *tf.train.TrackableView(learner).descendants()]
        names.append({x.value.name for x in found if isinstance(x, keras.Variable)})
    assert names[0] == names[1] != set()


@pytest.mark.slow
def test_memory_of_agents_is_returned():
    process, used = psutil.Process(), []
    for _ in range(30):
        learn_once(DISCARDED["dqn"])
        gc.collect()
        used.append(process.memory_info().rss / 2**20)
    assert used[-1] - used[4] < 15


@pytest.mark.quick("shape1-float64")
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("shape", [(2,), ()])
def test_actions_are_in_their_space(dtype, shape):
    seen = gymnasium.spaces.Box(-1, 1, (2,))
    bounded = gymnasium.spaces.Box(-0.1, 0.1, shape, dtype)
    small = {"type": "td3", "network": [8], "noise_std": 1.0}
    for rows in (1, 3):
        agent = agent_.Agent.create(small, seen, bounded, num_agents=rows)
        for _ in range(9):
            action = agent.act(np.ones([rows, 2][rows == 1 :], np.float32))
            for one in action if rows > 1 else [action]:
                assert bounded.contains(np.asarray(one))
                assert one.dtype == dtype
            agent.observe(np.zeros(rows), np.zeros(rows, bool))
