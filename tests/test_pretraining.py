"""Learning from recordings before acting."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from recorded import BOX, SEEN, record, rule

from agents import agent as agent_
from agents import networks, pretraining
from agents.networks import kinds
from agents.tools import recordings

UNROLLS = {"memory": "unrolls", "unroll_length": 16, "jit": False}
REPLAY = {"start_size": 8, "batch_size": 8, "jit": False, "network": [32]}


@pytest.mark.parametrize("continuous", ["normal", "tanh_normal", "beta"])
@pytest.mark.parametrize(
    "space",
    [
        BOX,
        gs.Discrete(4, start=-2),
        gs.MultiDiscrete([2, 3], start=[1, 0]),
        gs.MultiBinary(3),
        gs.Box(-2, 3, (2, 2), np.int8),
        gs.Dict({"a": gs.Discrete(3), "b": gs.Tuple([BOX, gs.MultiBinary(2)])}),
    ],
)
def test_samples_lead_to_their_actions(space, continuous):
    head = kinds.head(space, networks.NetworkConfig(continuous=continuous), 0)
    batch = gymnasium.vector.utils.batch_space(space, 9)
    batch.seed(0)
    action = tf.nest.map_structure(tf.constant, batch.sample())
    again = head.action(head.sample_of(action))
    left, right = tf.nest.flatten(action), tf.nest.flatten(again)
    for ours, theirs in zip(left, right, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.quick("beta", "sac", "discrete sac")
@pytest.mark.parametrize(
    ("config", "space"),
    [
        ({"type": "ppo", **UNROLLS}, gs.Discrete(3, start=1)),
        ({"type": "a2c", **UNROLLS, "network": {"continuous": "beta"}}, BOX),
        ({"type": "sac", **REPLAY}, BOX),
        ({"type": "sac", **REPLAY}, gs.Discrete(3, start=1)),
        ({"type": "td3", **REPLAY}, BOX),
    ],
    ids=["ppo", "beta", "sac", "discrete sac", "td3"],
)
def test_policies_imitate(config, space, tmp_path):
    seen = record(tmp_path / "expert.npz", space)
    agent = agent_.Agent.create(config, SEEN, space)

    def error():
        actions = [agent.act(x, independent=True) for x in seen[:60]]
        wanted = [rule(x, space) for x in seen[:60]]
        wrong = np.abs(np.subtract(actions, wanted)) > 0.2
        return np.mean(wrong)

    before = error()
    losses = pretraining.imitate(
        agent, tmp_path / "expert.npz", 400, learning_rate=1e-2
    )
    assert losses.shape == (400,)
    assert losses[-20:].mean() < losses[:20].mean()
    assert before > 0.3
    assert error() < 0.1


def test_recurrent_policies_imitate_what_needs_a_memory(tmp_path):
    space = gs.Discrete(3)
    seen = record(tmp_path / "expert.npz", space, delay=1)
    rates = []
    for layers in ([32], [{"type": "gru", "units": 32}]):
        values = {"type": "ppo", **UNROLLS, "network": layers}
        values |= {} if layers == [32] else {"chunk_length": 8}
        agent = agent_.Agent.create(values, SEEN, space)
        pretraining.imitate(agent, tmp_path / "expert.npz", 500, learning_rate=1e-2)
        right = 0
        for step in range(70):
            action = agent.act(seen[step], training=False)
            right += action == rule(seen[max(step - 1, step // 7 * 7)], space)
            agent.observe(0.0, step % 7 == 6)
        rates.append(right / 70)
    assert rates[0] < 0.75
    assert rates[1] > 0.9


@pytest.mark.parametrize(
    ("config", "space"),
    [
        ({"type": "dqn", **REPLAY, "n_step": 2, "prioritized": True}, gs.Discrete(3)),
        ({"type": "sac", **REPLAY, "replay_ratio": 0}, BOX),
    ],
    ids=["dqn", "sac"],
)
def test_a_filled_memory_is_that_of_experience(config, space, tmp_path):
    config = {"algorithm": {**config, "replay_ratio": 0, "capacity": 100}}
    config["preprocessing"] = [{"type": "sequence", "length": 2}]
    seen = record(tmp_path / "expert.npz", space, 40)
    ours, theirs = (agent_.Agent.create(config, SEEN, space) for _ in range(2))
    assert pretraining.fill(ours, tmp_path / "expert.npz") == 40
    data = recordings.load(tmp_path / "expert.npz", SEEN, space)
    row = tf.constant([0])
    learner = theirs.algorithm
    for step in range(40):
        if step % 7 == 0:
            learner.begin_episodes(row)
        learner.perform(row, seen[step : step + 1])
        action = learner.memory_action(tf.constant(data["action"][step : step + 1]))
        learner._chosen.assign(action)
        facts = (tf.constant(data[x][step : step + 1]) for x in recordings.FLAGS)
        learner.experience(
            row, seen[step : step + 1], None, *facts, seen[step + 1 : step + 2]
        )
    learner.memory.begin(row)
    batches = [
        x.algorithm.memory.sample(16, tf.constant([1, 2]), 0.4) for x in (ours, theirs)
    ]
    tf.nest.map_structure(np.testing.assert_array_equal, *batches)
    assert int(ours.algorithm.memory.size) == int(learner.memory.size) > 30
    assert int(ours.algorithm.steps) == 0


def test_what_cannot_be_pretrained_says_so(tmp_path):
    record(tmp_path / "expert.npz", gs.Discrete(3), 10)
    dqn = agent_.Agent.create({"type": "dqn", **REPLAY}, SEEN, gs.Discrete(3))
    with pytest.raises(
        NotImplementedError, match="DQN has no policy that could imitate"
    ):
        pretraining.imitate(dqn, tmp_path / "expert.npz")
    ppo = agent_.Agent.create({"type": "ppo", **UNROLLS}, SEEN, gs.Discrete(3))
    with pytest.raises(
        ValueError, match="ppo has no replay memory to fill; use imitate"
    ):
        pretraining.fill(ppo, tmp_path / "expert.npz")
    values = {"type": "ppo", **UNROLLS, "network": "gru"}
    gru = agent_.Agent.create(values, SEEN, gs.Discrete(3))
    with pytest.raises(recordings.RecordingError, match="has 10 steps, but 16"):
        pretraining.imitate(gru, tmp_path / "expert.npz")


FAR = gs.Box(-np.inf, np.inf, (1,))
NORMALIZE = {"preprocessing": ["normalize", {"type": "clip", "low": -2, "high": 2}]}


NORMALIZE["preprocessing"] += ["normalize", {"type": "sequence", "length": 2}]


def record_far(path, abandoned=False, steps=60, length=5):
    """Recording whose numbers are far from zero; actions follow their size."""
    recorder = recordings.Recorder(FAR, gs.Discrete(2))
    seen = np.random.default_rng(0).normal(100, 30, (steps, 2, 1)).astype(np.float32)
    for step, (now, after) in enumerate(seen):
        over = step % length == length - 1
        after = after if over else seen[step + 1, 0]
        over &= not abandoned
        recorder.record(now, int(now[0] > 100), 1.0, over and step % 2, over, after)
    recorder.save(path)
    return recordings.load(path, FAR, gs.Discrete(2))


def statistics(agent):
    return [x.numpy() for x in agent.algorithm.preprocessing.kept]


def train(agent, data):
    """Show an agent, which learns no weights, what was recorded."""
    for step in range(len(data["reward"])):
        agent.act(data["observation"][step])
        facts = (data[name][step] for name in recordings.FLAGS)
        agent.observe(*facts, next_observation=data["next_observation"][step])


@pytest.mark.quick("imitate", "fill")
@pytest.mark.parametrize("how", ["imitate", "fill", "update"])
def test_stages_learn_as_in_training(how, tmp_path):
    """Once from every observation, in order: the second stage sees what the first does."""
    data = record_far(tmp_path / "x.npz")
    kind = "dqn" if how == "fill" else "sac"
    config = {"type": kind, **REPLAY, "replay_ratio": 0, "capacity": 100}
    config = {"algorithm": config, **NORMALIZE}
    ours, theirs = (agent_.Agent.create(config, FAR, gs.Discrete(2)) for _ in range(2))
    train(theirs, data)
    if how == "update":
        ours.update({**data, "sequence_indices": np.zeros(60, int)})
    elif how == "fill":
        pretraining.fill(ours, tmp_path / "x.npz")
    else:
        pretraining.imitate(ours, tmp_path / "x.npz", updates=1)
    assert [x for x in statistics(ours) if x.shape == ()] == [60, 60]
    for x, y in zip(statistics(ours), statistics(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


def test_padding_teaches_stages_nothing(tmp_path):
    data = record_far(tmp_path / "x.npz")
    # The logarithm of padding is infinite.
    config = {"algorithm": {"type": "a2c", **UNROLLS, "network": [8]}}
    stages = [{"type": "function", "path": "tensorflow:math.log"}, "normalize"]
    config["preprocessing"] = stages
    agent = agent_.Agent.create(config, FAR, gs.Discrete(2))
    metrics = agent.update({**data, "sequence_indices": np.repeat([0, 1], [20, 40])})
    assert np.isfinite(metrics["policy_loss"])
    logarithms = np.log(data["observation"])
    (count,) = (x for x in statistics(agent) if x.shape == ())
    assert count == 60
    assert any(x == pytest.approx(logarithms.mean()) for x in statistics(agent))


@pytest.mark.parametrize("extra", [{}, {"preprocessing": ["normalize"]}])
def test_what_is_far_from_zero_is_imitated(extra, tmp_path):
    record_far(tmp_path / "x.npz", steps=500)
    config = {"type": "ppo", **UNROLLS, "network": [16]}
    config["normalize_observations"] = not extra
    config = {"algorithm": config, **extra}
    agent = agent_.Agent.create(config, FAR, gs.Discrete(2))
    pretraining.imitate(agent, tmp_path / "x.npz", updates=200, learning_rate=1e-2)
    seen = np.float32([[60], [90], [110], [140]])
    assert [agent.act(x, independent=True) for x in seen] == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["sac", "td3"])
def test_replay_policies_imitate_what_they_normalize(kind, tmp_path):
    space = gs.Box(-1, 1, (1,))
    recorder = recordings.Recorder(FAR, space)
    seen = np.random.default_rng(0).normal(100, 30, (500, 1)).astype(np.float32)
    for now in seen:
        action = np.clip((now - 100) / 100, -1, 1)
        recorder.record(now, action, 0.0, False, True, now)
    recorder.save(tmp_path / "x.npz")
    config = {"type": kind, **REPLAY, "normalize_observations": True}
    agent = agent_.Agent.create(config, FAR, space)
    pretraining.imitate(agent, tmp_path / "x.npz", 200, learning_rate=1e-2)
    found = [agent.act(x, independent=True).item() for x in np.float32([[60], [140]])]
    np.testing.assert_allclose(found, [-0.4, 0.4], atol=0.15)


def test_losses_of_imitation_are_means(tmp_path):
    record(tmp_path / "expert.npz", gs.Discrete(3), 60)
    agent = agent_.Agent.create({"type": "a2c", **UNROLLS}, SEEN, gs.Discrete(3))
    (loss,) = pretraining.imitate(agent, tmp_path / "expert.npz", 1)
    assert loss == pytest.approx(np.log(3), abs=0.1)  # All actions are as likely.
    seen = record(tmp_path / "expert.npz", BOX, 60)[:60]
    agent = agent_.Agent.create({"type": "td3", **REPLAY}, SEEN, BOX)
    both = [
        [agent.act(x, independent=True) for x in seen],
        [rule(x, BOX) for x in seen],
    ]
    width = (BOX.high - BOX.low) / 2  # Of actions between -1 and 1.
    expected = np.mean((np.subtract(*both) / width) ** 2)
    (loss,) = pretraining.imitate(agent, tmp_path / "expert.npz", 1)
    assert loss == pytest.approx(expected, rel=1e-4)


def test_actions_at_the_ends_of_their_range_are_imitated(tmp_path):
    recorder = recordings.Recorder(SEEN, BOX)
    for step in range(20):
        seen = np.full(3, step / 20, np.float32)
        recorder.record(seen, BOX.high, 0.0, False, True, seen)
    recorder.save(tmp_path / "x.npz")
    agent = agent_.Agent.create({"type": "sac", **REPLAY}, SEEN, BOX)
    losses = pretraining.imitate(agent, tmp_path / "x.npz", 3)
    assert np.isfinite(losses).all()


def test_who_refuses_to_imitate_learns_nothing(tmp_path):
    record_far(tmp_path / "x.npz")
    config = {"algorithm": {"type": "dqn", **REPLAY}, **NORMALIZE}
    agent = agent_.Agent.create(config, FAR, gs.Discrete(2))
    before = statistics(agent)
    with pytest.raises(NotImplementedError):
        pretraining.imitate(agent, tmp_path / "x.npz")
    for x, y in zip(before, statistics(agent), strict=True):
        np.testing.assert_array_equal(x, y)


def test_abandoned_episodes_are_cut_off(tmp_path):
    recorder = recordings.Recorder(SEEN, gs.Discrete(2))
    for episode, length in enumerate((2, 3, 2)):
        for step in range(length):
            now, after = (np.float32([episode, x, 0]) for x in (step, step + 1))
            recorder.record(now, 0, 1.0, episode == 1 and step == 2, False, after)
    recorder.save(tmp_path / "x.npz")
    data = recordings.load(tmp_path / "x.npz", SEEN, gs.Discrete(2))
    assert not data["truncated"].any()
    pieces, mask = recordings.fragments(data, np.repeat([5, 3], [5, 2]))
    assert mask.sum(1).tolist() == [2, 5]
    assert np.argwhere(pieces["truncated"]).tolist() == [[1, 1]]
    config = {"type": "dqn", **REPLAY, "capacity": 100, "n_step": 2}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(2))
    assert pretraining.fill(agent, tmp_path / "x.npz") == 7
    items = agent.algorithm.memory.sample(200, tf.constant([1, 2]))
    now, after = (items[x].numpy() for x in ("observation", "next_observation"))
    found = {(*x[:2], *y[:2]) for x, y in zip(now, after, strict=True)}
    assert found == {
        *((0, 0, 0, 2), (0, 1, 0, 2)),
        *((1, 0, 1, 2), (1, 1, 1, 3), (1, 2, 1, 3)),
        (2, 0, 2, 2),  # What follows the last step is not known.
    }


@pytest.mark.slow
def test_abandoned_episodes_are_imitated_and_learned_from_like_ended_ones(tmp_path):
    """By a recurrent policy and stages with a memory, whose states begin anew."""
    names = [tmp_path / "ended.npz", tmp_path / "abandoned.npz"]
    ended, abandoned = (record_far(x, x == names[1]) for x in names)
    ended["truncated"] |= ended["terminated"]
    ended["terminated"][:] = False
    config = {"type": "a2c", **UNROLLS, "network": [{"type": "gru", "units": 4}]}
    config["chunk_length"] = 8
    config = {"algorithm": config, **NORMALIZE}
    results = []
    for name, data in zip(names, (ended, abandoned), strict=True):
        agent = agent_.Agent.create(config, FAR, gs.Discrete(2))
        losses = pretraining.imitate(agent, name, updates=3)
        results.append([losses, list(agent.update(data).values())])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_empty_recording_is_refused(tmp_path):
    space = gs.Discrete(2)
    recordings.Recorder(space, space).save(tmp_path / "x.npz")
    agent = agent_.Agent.create({"type": "dqn", **REPLAY}, space, space)
    with pytest.raises(recordings.RecordingError, match=r"x\.npz has no steps"):
        pretraining.fill(agent, tmp_path / "x.npz")


def test_memory_of_many_rows_is_filled(tmp_path):
    recorder = recordings.Recorder(SEEN, gs.Discrete(2))
    for step in range(200):
        seen = np.full(SEEN.shape, step / 200, np.float32)
        recorder.record(seen, 0, float(step), step % 10 == 9, False, seen)
    recorder.save(tmp_path / "x.npz")
    config = {"type": "dqn", **REPLAY, "capacity": 800}
    agent = agent_.Agent.create(config, SEEN, gs.Discrete(2), num_agents=4)
    assert pretraining.fill(agent, tmp_path / "x.npz") == 200
    memory = agent.algorithm.memory
    assert memory.size.numpy() == 200
    items = memory.sample(4_000, tf.constant([1, 2]), 0.4)
    assert set(items["reward"].numpy()) == set(range(200))


def test_forbidden_actions_are_refused(tmp_path):
    observations = gs.Dict(x=gs.Box(-1, 1, (2,)), action_mask=gs.MultiBinary(2))
    path, actions = tmp_path / "masked.npz", gs.Discrete(2)
    recorder = recordings.Recorder(observations, actions)
    seen = {"x": np.zeros(2, np.float32), "action_mask": np.int8([1, 0])}
    for action in (0, 0, 1):
        recorder.record(seen, action, 1.0, False, False, seen)
    recorder.save(path)
    config = {"type": "a2c", "jit": False, "network": [8]}
    with pytest.raises(recordings.RecordingError, match="action 1 of step 2 is not"):
        pretraining.imitate(agent_.Agent.create(config, observations, actions), path)
    config = {"type": "dqn", "capacity": 99, "jit": False, "network": [8]}
    with pytest.raises(recordings.RecordingError, match="masked.npz: action 1 of step"):
        pretraining.fill(agent_.Agent.create(config, observations, actions), path)


@pytest.mark.parametrize(
    "wrong", [{"updates": 0}, {"batch_size": -1}, {"updates": 2.0}]
)
def test_sizes_of_imitation_are_positive(wrong):
    with pytest.raises(ValueError, match="must be a positive integer, got"):
        pretraining.imitate(None, "nothing.npz", **wrong)


def test_layers_are_in_training_mode(tmp_path):
    """Statistics of batches learn, penalties count, and targets follow the policy."""
    record(tmp_path / "expert.npz", BOX)
    layers = [8, "batch_normalization"]
    settings = {"type": "ppo", **UNROLLS, "network": {"layers": layers}}
    agent = agent_.Agent.create(settings, SEEN, BOX)
    losses = []
    for penalty in (None, {"type": "l2", "l2": 10.0}):
        layer = {"type": "dense", "units": 8, "kernel_regularizer": penalty}
        penalized = {"type": "a2c", **UNROLLS, "network": [layer]}
        other = agent_.Agent.create(penalized, SEEN, BOX)
        losses.append(pretraining.imitate(other, tmp_path / "expert.npz", 1)[0])
    assert losses[1] > losses[0] + 1
    pretraining.imitate(agent, tmp_path / "expert.npz", 50)
    means = [
        x.numpy()
        for x in agent.algorithm.network.non_trainable_variables
        if "moving_mean" in x.path
    ]
    assert means
    assert any(np.abs(x).max() > 0.01 for x in means)
    agent = agent_.Agent.create({"type": "td3", **REPLAY}, SEEN, BOX)
    pretraining.imitate(agent, tmp_path / "expert.npz", 20)
    both = agent.algorithm.policy, agent.algorithm.target_policy
    for one, two in zip(*(x.variables for x in both), strict=True):
        np.testing.assert_array_equal(one, two)


def test_episodes_are_remembered_by_the_row_that_is_shortest():
    first = np.zeros(10, bool)
    first[[0, 5, 6, 7]] = True  # Lengths 5, 1, 1 and 3.
    assert pretraining._divide(first, 2).tolist() == [0] * 5 + [1] * 5
