"""Recordings, and what agents learn of them before they act."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import agent as agent_
from agents import networks, pretraining
from agents.networks import heads
from agents.tools import files, recordings

BOX = gs.Box(np.float32([-2, 0]), np.float32([2, 1]))
SEEN = gs.Box(-1, 1, (3,))
NESTED = gs.Dict({"image": gs.Box(0, 255, (2, 2, 1), np.uint8), "word": gs.Discrete(3)})
UNROLLS = {"memory": "unrolls", "unroll_length": 16, "jit": False}
REPLAY = {"start_size": 8, "batch_size": 8, "jit": False, "network": [32]}


def rule(observation, space):
    """What the expert does."""
    if isinstance(space, gs.Discrete):
        return int(space.start + (observation[0] > 0) + (observation[1] > 0))
    unit = np.clip(observation[:2], -0.9, 0.9)
    return (space.low + (unit + 1) / 2 * (space.high - space.low)).astype(np.float32)


def record(path, space, steps=600, delay=0, length=7):
    """Recording of an expert, whose actions follow what was seen some steps before."""
    recorder = recordings.Recorder(SEEN, space)
    random = np.random.default_rng(0)
    seen = random.uniform(-1, 1, (steps + 1, 3)).astype(np.float32)
    for step in range(steps):
        action = rule(seen[max(step - delay, step // length * length)], space)
        over = step % length == length - 1
        recorder.record(
            seen[step], action, 0.5, over and step % 2, over, seen[step + 1]
        )
    recorder.save(path)
    return seen


def test_what_is_recorded_is_read(tmp_path):
    recorder = recordings.Recorder(NESTED, BOX)
    NESTED.seed(0)
    steps = [
        (NESTED.sample(), BOX.sample(), float(x), x == 2, x == 1, NESTED.sample())
        for x in range(3)
    ]
    for step in steps:
        recorder.record(*step)
    assert len(recorder) == 3
    recorder.save(tmp_path / "x.npz")
    data = recordings.load(tmp_path / "x.npz", NESTED, BOX)
    assert data["reward"].tolist() == [0, 1, 2]
    assert data["terminated"].tolist() == [False, False, True]
    assert data["truncated"].tolist() == [False, True, False]
    for index, (seen, action, *_, following) in enumerate(steps):
        np.testing.assert_array_equal(data["action"][index], action)
        for key in NESTED:
            np.testing.assert_array_equal(data["observation"][key][index], seen[key])
            ours = data["next_observation"][key][index]
            np.testing.assert_array_equal(ours, following[key])


def test_damaged_recordings_are_refused_in_one_line(tmp_path):
    path = tmp_path / "x.npz"
    record(path, BOX, steps=20)
    content = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    cut = arrays | {"action": arrays["action"][:-1]}
    contents = [b"", b"text", content[:300], content[:-30], b"?" + content[1:]]
    for damaged in (*contents, cut, arrays | {"reward": 1.0}, arrays["reward"]):
        if isinstance(damaged, bytes):
            path.write_bytes(damaged)
        elif isinstance(damaged, dict):
            np.savez(path, **damaged)
        else:
            with path.open("wb") as file:
                np.save(file, damaged)
        with pytest.raises(recordings.RecordingError) as error:
            recordings.load(path, SEEN, BOX)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(recordings.RecordingError, match="No such file"):
        recordings.load(path, SEEN, BOX)


def test_byte_that_changes_in_a_recording_never_changes_what_is_read(tmp_path):
    path = tmp_path / "x.npz"
    record(path, BOX, steps=20)
    content, refused = path.read_bytes(), 0
    expected = recordings.load(path, SEEN, BOX)
    for at in range(0, len(content), 13):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        try:
            found = recordings.load(path, SEEN, BOX)
        except recordings.RecordingError:
            refused += 1
        else:  # It was a date, for example.
            tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
    assert refused > len(content) / 13 / 2


def test_full_disk_leaves_the_recording_that_was_saved(tmp_path, full_disk):
    path = tmp_path / "x.npz"
    record(path, BOX, steps=20)
    content = path.read_bytes()
    with full_disk(1000), pytest.raises(files.WriteError, match="it needs more than"):
        record(path, BOX, steps=100)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_does_not_fit_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    record(path, gs.Discrete(3), 5)
    recorder = recordings.Recorder(SEEN, BOX)
    with pytest.raises(
        recordings.RecordingError, match=r"observation must have .*\(3,\)"
    ):
        recorder.record(np.zeros(2), BOX.sample(), 0.0, False, False, np.zeros(3))
    with pytest.raises(recordings.RecordingError, match=r"reward must have .*\(2,\)"):
        recorder.record(
            np.zeros(3, np.float32), BOX.sample(), [0.0, 1.0], False, False, np.zeros(3)
        )
    values = [np.zeros(3), [0, 0.5], 0.0, False, False, np.zeros(3)]
    for index, wrong, message in (
        (0, np.full(3, np.nan), "observation must be finite, got nan"),
        (1, [9.0, 0.5], "action must be from -2.0 to 2.0, got 9.0"),
        (2, np.inf, "reward must be finite, got inf"),
        (3, "no", "terminated must be true or false, got 'no'"),
    ):
        with pytest.raises(recordings.RecordingError, match=message):
            recorder.record(*values[:index], wrong, *values[index + 1 :])
    assert len(recorder) == 0
    arrays = dict(np.load(path))
    for name, wrong in (("reward", np.nan), ("action", 3)):
        array = arrays[name].copy()
        array[2] = wrong
        np.savez(tmp_path / "wrong.npz", **{**arrays, name: array})
        with pytest.raises(recordings.RecordingError, match=f"{name} must be f"):
            recordings.load(tmp_path / "wrong.npz", SEEN, gs.Discrete(3))
    with pytest.raises(recordings.RecordingError, match="must be float32 .* int64"):
        recordings.load(path, SEEN, BOX)
    with pytest.raises(recordings.RecordingError, match="has no observation/image"):
        recordings.load(path, NESTED, gs.Discrete(3))
    with pytest.raises(recordings.RecordingError, match="cannot read recording"):
        recordings.load(tmp_path / "none.npz", SEEN, BOX)
    path.write_text("nothing")
    with pytest.raises(recordings.RecordingError, match="cannot read recording"):
        recordings.load(path, SEEN, BOX)


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
    head = heads.head(space, networks.NetworkConfig(continuous=continuous), 0)
    batch = gymnasium.vector.utils.batch_space(space, 9)
    batch.seed(0)
    action = tf.nest.map_structure(tf.constant, batch.sample())
    again = head.action(head.sample_of(action))
    left, right = tf.nest.flatten(action), tf.nest.flatten(again)
    for ours, theirs in zip(left, right, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


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
        values = {"type": "ppo", **UNROLLS, "chunk_length": 8, "network": layers}
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


def test_who_refuses_to_imitate_learns_nothing(tmp_path):
    record_far(tmp_path / "x.npz")
    config = {"algorithm": {"type": "dqn", **REPLAY}, **NORMALIZE}
    agent = agent_.Agent.create(config, FAR, gs.Discrete(2))
    with pytest.raises(NotImplementedError):
        pretraining.imitate(agent, tmp_path / "x.npz")
    assert not any(x.any() for x in statistics(agent))


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
