"""Recordings: written ones are read as they were, damaged ones are refused."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from recorded import BOX, SEEN, record

from agents.tools import files, recordings

NESTED = gs.Dict({"image": gs.Box(0, 255, (2, 2, 1), np.uint8), "word": gs.Discrete(3)})


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


def test_parts_of_the_same_name_are_refused_before_anything_is_recorded(tmp_path):
    inner = gs.Dict({"b": gs.Discrete(3)})
    both = gs.Dict({"a/b": BOX, "a": inner})
    for pair in ((both, BOX), (BOX, both)):
        with pytest.raises(recordings.RecordingError, match="two parts named .*a/b'"):
            recordings.Recorder(*pair)


def test_recording_without_steps_is_read_as_such(tmp_path):
    path = tmp_path / "x.npz"
    record(path, BOX, steps=0)
    message = f"recording {path} has no steps"
    with pytest.raises(recordings.RecordingError, match=message):
        recordings.load(path, SEEN, BOX)


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
