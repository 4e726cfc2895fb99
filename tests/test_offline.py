"""Learning on request, from memory and from the data of others."""

import gymnasium
import numpy as np
import pytest
import simulated
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import without_graphs

from agents import agent as agent_
from agents import offline
from agents.tools import recordings

SEEN = gs.Box(-1, 1, (3,))
STEPS = 12
GRU = {"network": [8, {"type": "gru", "units": 8}], "chunk_length": 3}
UNROLLS = {"memory": "unrolls", "unroll_length": STEPS, "jit": False}
REPLAY = {"start_size": 8, "batch_size": 8, "jit": False, "network": [16]}


class Episodes:
    """Two environments whose episodes have lengths 5, 4, 3 and 7, 5."""

    LENGTHS = ((5, 4, 3), (7, 5))

    def __init__(self, space, seed=0):
        random = np.random.default_rng(seed)
        space.seed(seed)
        ends = [np.cumsum(x) - 1 for x in self.LENGTHS]
        seen = random.uniform(-1, 1, (2, STEPS, 2, 3)).astype(np.float32)
        self.steps = []
        for row in range(2):
            for step in range(STEPS):
                over = step in ends[row]
                cut = bool(over and step % 2)
                after = seen[row, step, 1] if over else seen[row, step + 1, 0]
                self.steps.append(
                    {
                        "observation": seen[row, step, 0],
                        "action": space.sample(),
                        "reward": np.float32(random.normal()),
                        "terminated": bool(over and not cut),
                        "truncated": cut or step == STEPS - 1 and not over,
                        "next_observation": after,
                    }
                )

    def batch(self, actions=None):
        """All steps, the second row first, rows identified by numbers."""
        order = [*range(STEPS, 2 * STEPS), *range(STEPS)]
        batch = {
            name: np.stack([self.steps[x][name] for x in order])
            for name in self.steps[0]
        }
        if actions is not None:
            batch["action"] = np.concatenate([actions[1], actions[0]])
        return {**batch, "sequence_indices": np.repeat([7, 3], STEPS)}

    def show(self, agent):
        """Let an agent act and observe; returns its actions by row."""
        actions = []
        for step in range(STEPS):
            now = [self.steps[step], self.steps[STEPS + step]]
            actions.append(agent.act(np.stack([x["observation"] for x in now])))
            facts = ([x[name] for x in now] for name in recordings.FLAGS)
            after = np.stack([x["next_observation"] for x in now])
            agent.observe(*facts, next_observation=after)
        return np.swapaxes(actions, 0, 1)


def weights(agent):
    return [x.copy() for x in agent.get_weights()]


@pytest.mark.quick("episodes-space1")
@pytest.mark.parametrize("space", [gs.Discrete(3, start=1), gs.Box(-2, 1, (2,))])
@pytest.mark.parametrize(
    "config",
    [
        {"type": "a2c", **UNROLLS},
        {"type": "a2c", **UNROLLS, **GRU},
        {"type": "a2c", **UNROLLS, "normalize_rewards": "reward"},
        {"type": "vpg", "memory": "episodes", "update_every": 5, "jit": False},
        {"type": "impala", "unroll_length": 4, "unrolls_per_update": 3, "queue_size": 0}
        | {"jit": False},
    ],
    ids=["a2c", "gru", "rewards", "episodes", "impala"],
)
def test_others_data_are_learned_from_like_own_ones(config, space):
    """The actions are those of the agent, so the same update must follow."""
    ours, theirs = (
        agent_.Agent.create(config, SEEN, space, 2, max_length=8) for _ in range(2)
    )
    data = Episodes(space)
    before = weights(ours)
    actions = data.show(theirs)
    assert int(theirs.algorithm.updates) == 1
    metrics = ours.update(data.batch(actions))
    assert int(ours.algorithm.updates) == 1
    assert set(metrics) == set(theirs.algorithm.metrics.result())
    assert int(ours.algorithm.steps) == 0
    trained = ours.algorithm.network.trainable_variables
    assert any(np.any(x != y) for x, y in zip(before, weights(ours), strict=True))
    for x, y in zip(trained, theirs.algorithm.network.trainable_variables, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)
    for name, value in theirs.algorithm.metrics.result().items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("count", [24, 17, 1])
def test_a_sum_is_over_the_steps_of_the_batch(count):
    """Not over those of a batch of its own, which would be 2 * 5 * 3."""
    space = gs.Discrete(3)
    batch = {name: x[:count] for name, x in Episodes(space).batch().items()}
    config = {"type": "impala", "unroll_length": 5, "unrolls_per_update": 3}
    results = {}
    for reduction in ("sum", "mean"):
        settings = {**config, "reduction": reduction, "jit": False}
        agent = agent_.Agent.create(settings, SEEN, space, 2)
        with without_graphs():
            results[reduction] = agent.update(batch)
    for name in ("policy_loss", "value_loss", "gradient_norm"):
        expected = count * results["mean"][name]
        assert results["sum"][name] == pytest.approx(expected, rel=1e-4), name


@pytest.mark.quick("dqn-stages0", "sac-stages0", "td3-stages1")
@pytest.mark.parametrize("stages", [[], [{"type": "sequence", "length": 2}]])
@pytest.mark.parametrize(
    ("config", "space"),
    [
        ({"type": "dqn", "n_step": 3}, gs.Discrete(3, start=1)),
        ({"type": "sac", "n_step": 2, "reward_clip": 0.5}, gs.Box(-2, 1, (2,))),
        ({"type": "td3"}, gs.Box(-2, 1, (2,))),
    ],
    ids=["dqn", "sac", "td3"],
)
def test_transitions_are_those_of_a_replay_memory(config, space, stages, monkeypatch):
    config = {**REPLAY, **config, "capacity": 100, "replay_ratio": 0}
    config = {"algorithm": config, "preprocessing": stages}
    ours, theirs = (agent_.Agent.create(config, SEEN, space, 2) for _ in range(2))
    data, learned = Episodes(space), []
    actions = data.show(theirs)
    memory = theirs.algorithm.memory
    entries = np.array([*range(STEPS)])
    index = np.concatenate([2 * entries + row for row in (0, 1)])
    # An episode's last observation takes an entry of its own.
    skipped = [np.cumsum([0, *x])[1:-1] for x in Episodes.LENGTHS]
    for row in (0, 1):
        for end in skipped[row]:
            index[row * STEPS : (row + 1) * STEPS] += 2 * (entries >= end)
    stack = memory._frames
    index += 2 * (stack - 1)
    wanted = memory.get(tf.constant(index))
    monkeypatch.setattr(
        ours.algorithm, "learn", lambda items: learned.append(items) or ({}, None)
    )
    monkeypatch.setattr(ours.algorithm, "_run_update_on", ours.algorithm._update_on)
    monkeypatch.setattr(ours.algorithm.metrics, "update", lambda *_: None)
    monkeypatch.setattr(
        *(ours, "_update"),
        lambda *x: offline.update(
            ours.algorithm, *tf.nest.map_structure(tf.constant, x)
        ),
    )
    ours.update(data.batch(actions))
    (items,) = learned
    for name in ("reward", "discount", "action", "observation", "next_observation"):
        # Fragments are sorted by their numbers: 3, which is the first row, then 7.
        np.testing.assert_allclose(items[name], wanted[name], atol=1e-6, err_msg=name)
    assert np.all(items["weight"].numpy() == 1.0)


def unequal(space, lengths):
    """Batch of fragments of these lengths."""
    batch = Episodes(space).batch()
    indices = np.repeat(np.arange(len(lengths)), lengths)
    batch = {name: x[: len(indices)] for name, x in batch.items()}
    return {**batch, "sequence_indices": indices}


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_fragments_of_other_lengths_are_each_as_alone(kind, monkeypatch):
    config = {"type": kind, **REPLAY, "capacity": 100, "n_step": 3}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(3))
    learned = []
    monkeypatch.setattr(agent.algorithm, "train_on", learned.append)
    batch = unequal(gs.Discrete(3), (3, 1, 9, 2))
    fragments, mask = agent._fragments(batch)
    with simulated.without_graphs():
        for rows in (slice(None), *(slice(x, x + 1) for x in range(4))):
            length = mask[rows].sum(1).max()
            pieces = tf.nest.map_structure(
                lambda x: tf.constant(x[rows, :length]),  # noqa: B023
                (fragments, mask),
            )
            offline.update(agent.algorithm, *pieces)
    together, *alone = learned
    alone = tf.nest.map_structure(lambda *x: tf.concat(x, 0), *alone)
    tf.nest.map_structure(np.testing.assert_array_equal, together, alone)
    assert len(together["reward"]) == 15


@pytest.mark.parametrize(
    ("config", "space"),
    [
        ({"type": "a2c", **UNROLLS}, gs.Discrete(3)),
        ({"type": "ppo", **UNROLLS, **GRU, "epochs": 1}, gs.Discrete(3)),
        ({"type": "impala", "unroll_length": 4, "jit": False}, gs.Discrete(3)),
        ({"type": "dqn", **REPLAY, "n_step": 3}, gs.Discrete(3)),
        ({"type": "td3", **REPLAY, "n_step": 2}, gs.Box(-2, 1, (2,))),
    ],
    ids=["a2c", "gru", "impala", "dqn", "td3"],
)
def test_padding_behind_fragments_changes_nothing(config, space):
    stages = {"algorithm": config, "preprocessing": ["normalize"]}
    agents = [agent_.Agent.create(stages, SEEN, space) for _ in range(2)]
    before = weights(agents[0])
    fragments, mask = agents[0]._fragments(unequal(space, (3, 5)))
    with simulated.without_graphs():
        for agent, missing in zip(agents, (0, 7), strict=True):
            padded = tf.nest.map_structure(
                lambda x: tf.constant(
                    np.pad(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)])  # noqa: B023
                ),
                (fragments, mask),
            )
            offline.update(agent.algorithm, *padded)
    assert not simulated.same(before, weights(agents[0]))
    for ours, theirs in zip(*map(weights, agents), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_fragments_that_are_not_over_are_cut_off():
    """Even if nobody says so: their values estimate what follows."""
    metrics = []
    for flag in (True, False):
        batch = Episodes(gs.Discrete(3)).batch()
        batch["truncated"][[STEPS - 1, -1]] = flag
        batch["terminated"][[STEPS - 1, -1]] = False
        config = {"type": "a2c", **UNROLLS}
        agent = agent_.Agent.create(config, SEEN, gs.Discrete(3))
        with without_graphs():
            metrics.append(agent.update(batch))
    assert metrics[0] == metrics[1]


def test_statistics_learn_from_the_data_of_others():
    config = {"type": "dqn", **REPLAY, "normalize_observations": True}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(3))
    batch = unequal(gs.Discrete(3), (3, 5))
    with without_graphs():
        agent.update(batch)
    means = [x.numpy() for x in agent.algorithm.observations.variables]
    expected = batch["observation"].mean(0)
    assert any(x.shape == (3,) and np.allclose(x, expected) for x in means)


def test_updates_by_hand_change_priorities():
    config = {"type": "dqn", **REPLAY, "prioritized": True, "replay_ratio": 0}
    config = {**config, "capacity": 100, "start_size": 100}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(3), 2)
    Episodes(gs.Discrete(3)).show(agent)
    seen = []
    update = agent.algorithm.memory.update
    agent.algorithm.memory.update = lambda *x: seen.append(x) or update(*x)
    with without_graphs():
        agent.update()
    ((index, priority),) = seen
    assert len(index) == len(priority) == 8
    assert len({*priority.numpy().tolist()}) > 1


def test_memories_need_as_many_transitions_as_an_update():
    config = {"type": "dqn", **REPLAY, "replay_ratio": 0, "capacity": 100}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(3))
    for _ in range(7):
        agent.act(np.zeros(3, np.float32))
        agent.observe(0.0, False, next_observation=np.zeros(3, np.float32))
    with pytest.raises(agent_.AgentError, match="holds 7 transitions, .* needs 8"):
        agent.update()
    agent.act(np.zeros(3, np.float32))
    agent.observe(0.0, False, next_observation=np.zeros(3, np.float32))
    with without_graphs():
        assert np.isfinite(agent.update()["loss"])


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_updates_by_hand_do_not_replace_those_that_are_due(kind):
    space = gs.Discrete(3)
    config = {"type": kind, **REPLAY, "replay_ratio": 0.25, "capacity": 100}
    agent = agent_.Agent.create(config, SEEN, space, 2)
    data = Episodes(space)
    for _ in range(5):
        agent.update(data.batch())
    data.show(agent)
    before = int(agent.algorithm.updates)
    due = (
        2 * (STEPS - 1) - 8 + 2
    ) // 4  # The last step of each row is not learned yet.
    assert abs(before - 5 - due) <= 1
    metrics = agent.update()
    assert int(agent.algorithm.updates) == before + 1
    assert np.isfinite(metrics["loss" if kind == "dqn" else "critic_loss"])


def test_episodes_may_be_learned_from_early():
    space = gs.Discrete(3)
    config = {"type": "ppo", "memory": "episodes", "update_every": 10, "epochs": 2}
    agent = agent_.Agent.create({**config, "jit": False}, SEEN, space, 2, max_length=8)
    with pytest.raises(agent_.AgentError, match="no episode is finished"):
        agent.update()
    before = weights(agent)
    Episodes(space).show(agent)
    assert int(agent.algorithm.updates) == 0
    metrics = agent.update()
    assert int(agent.algorithm.updates) == 1
    assert metrics["entropy"] > 0
    assert any(np.any(x != y) for x, y in zip(before, weights(agent), strict=True))
    with pytest.raises(agent_.AgentError, match="no episode is finished"):
        agent.update()


def test_metrics_of_other_updates_stay():
    agent = agent_.Agent.create({"type": "a2c", **UNROLLS}, SEEN, gs.Discrete(3), 2)
    data = Episodes(gs.Discrete(3))
    data.show(agent)
    count = agent.algorithm.metrics._count.numpy()
    metrics = agent.update(data.batch())
    assert metrics["policy_loss"] != agent.algorithm.metrics.result()["policy_loss"]
    assert np.array_equal(agent.algorithm.metrics._count, count + (count > 0))


def test_a_recording_is_a_batch(tmp_path):
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    spaces = env.observation_space, env.action_space
    recorder = recordings.Recorder(*spaces)
    observation, _ = env.reset(seed=0)
    for _ in range(60):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        recorder.record(observation, action, reward, terminated, truncated, after)
        over = terminated or truncated
        observation = env.reset()[0] if over else after
    recorder.save(tmp_path / "x.npz")
    agent = agent_.Agent.create({"type": "dqn", **REPLAY}, *spaces)
    batch = recordings.load(tmp_path / "x.npz", *spaces)
    losses = [agent.update(batch)["loss"] for _ in range(300)]
    assert losses[-1] < 0.5 * losses[0]


def test_wrong_batches():
    space = gs.Discrete(3)
    agent = agent_.Agent.create({"type": "dqn", **REPLAY}, SEEN, space)
    batch = Episodes(space).batch()
    wrong = {
        "a batch has the parts .*; got action": {
            k: v for k, v in batch.items() if k != "reward"
        },
        "got .*log_prob": {**batch, "log_prob": 1},
        "got 1, action": {**batch, 1: 2},
        "a batch is a mapping, got list": [batch],
        r"observation must have the shape \(24, 3\)": {
            **batch,
            "observation": batch["observation"][:, :2],
        },
        r"next_observation must have the shape": {
            **batch,
            "next_observation": batch["next_observation"][:3],
        },
        "action must be int64": {**batch, "action": batch["action"] * 0.5},
        r"sequence_indices must have the shape \(24,\)": {
            **batch,
            "sequence_indices": [1, 2],
        },
        "a batch needs at least one step": {k: v[:0] for k, v in batch.items()},
    }
    for message, value in wrong.items():
        with pytest.raises(agent_.AgentError, match=message):
            agent.update(value)
    with pytest.raises(agent_.AgentError, match="holds 0 transitions, .* needs 8"):
        agent.update()
    unrolls = agent_.Agent.create({"type": "a2c", **UNROLLS}, SEEN, space)
    with pytest.raises(agent_.AgentError, match="a2c learns from unrolls by itself"):
        unrolls.update()
