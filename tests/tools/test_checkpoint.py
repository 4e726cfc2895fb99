"""Checkpoints that are whole or not there, whatever happens while writing."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import keras
import pytest
import tensorflow as tf

from agents.tools import checkpoint

ROOT = pathlib.Path(__file__).parents[2]


class Killed(BaseException):
    """Stands for the end of the process."""


class Crash:
    """Ends the process at one of the changes that it makes to directories."""

    def __init__(self, monkeypatch):
        self.remaining = None
        for name in ("rename", "mkdir", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, function):
        def wrapper(*args, **kwargs):
            if self.remaining is not None:
                self.remaining -= 1
                if self.remaining < 0:
                    raise Killed
            return function(*args, **kwargs)

        return wrapper


def trackables(value=0.0, size=3):
    module = tf.Module()
    module.weights = tf.Variable(tf.fill([size], float(value)))
    module.count = tf.Variable(int(value), dtype=tf.int64)
    return {"module": module}


def save(checkpoints, step, value, **state):
    return checkpoints.save(step, trackables(value), {"value": value, **state})


def load(directory, name=None):
    """Number in a checkpoint, which all parts of it must agree on."""
    loaded = trackables(-1)
    state = checkpoint.Checkpoints(directory).restore(loaded, name)
    weights = loaded["module"].weights.numpy()
    assert (weights == state["value"]).all()
    assert loaded["module"].count.numpy() == state["value"]
    return state["value"]


def one_line(function, *args):
    with pytest.raises(checkpoint.CheckpointError) as caught:
        function(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_round_trip(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path / "new" / "directory")
    assert checkpoints.names() == []
    state = {"step": 5, "nested": {"list": [1, None, "x"], "float": 0.1}}
    name = checkpoints.save(5, trackables(7), {"value": 7, **state})
    assert name == "step-000000000005"
    loaded = trackables(0)
    assert checkpoints.restore(loaded) == {"value": 7, **state}
    assert loaded["module"].weights.numpy().tolist() == [7, 7, 7]


def test_newest_is_that_of_the_largest_step(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    for step in (9, 10, 100_000_000_000, 2):
        save(checkpoints, step, step % 97)
    assert checkpoints.names() == [
        "step-000000000002",
        "step-000000000009",
        "step-000000000010",
        "step-100000000000",
    ]
    assert load(tmp_path) == 100_000_000_000 % 97
    assert load(tmp_path, "step-000000000009") == 9


def test_only_the_newest_are_kept(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path, keep=2)
    for step in range(5):
        save(checkpoints, step, step)
        assert len(checkpoints.names()) == min(step + 1, 2)
    assert checkpoints.names() == ["step-000000000003", "step-000000000004"]
    assert sorted(path.name for path in tmp_path.iterdir()) == checkpoints.names()


def test_same_step_replaces(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path, keep=3)
    for value in range(3):
        save(checkpoints, 8, value)
        assert load(tmp_path) == value
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000008"]


def test_errors_are_one_line(tmp_path):
    empty = checkpoint.Checkpoints(tmp_path / "empty")
    assert "no checkpoint in" in one_line(empty.restore, {})
    checkpoints = checkpoint.Checkpoints(tmp_path)
    save(checkpoints, 1, 1)
    text = one_line(checkpoints.restore, trackables(), "step-2")
    assert "no checkpoint 'step-2'" in text
    assert "there are step-000000000001" in text


@pytest.mark.parametrize("case", ["shape", "missing", "additional", "type"])
def test_checkpoint_of_another_model_is_refused_in_one_line(tmp_path, case):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    save(checkpoints, 1, 1)
    other = trackables()
    if case == "shape":
        other = trackables(size=4)
    elif case == "missing":
        del other["module"].count
    elif case == "additional":
        other["module"].more = tf.Variable(0.0)
    else:
        other["module"].count = tf.Variable(0.0)
    text = one_line(checkpoints.restore, other)
    assert "step-000000000001 does not fit this config" in text


def test_network_of_another_shape_is_refused_in_one_line(tmp_path):
    def network(*units):
        layers = [keras.layers.Dense(x) for x in units]
        model = keras.Sequential([keras.Input([3]), *layers])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        return {"network": model, "optimizer": optimizer}

    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(1, network(4, 2), {})
    checkpoints.restore(network(4, 2))
    for units in ((5, 2), (4, 4, 2), (4,)):
        text = one_line(checkpoints.restore, network(*units))
        assert "does not fit this config" in text


@pytest.mark.parametrize("damage", ["state", "index", "data", "text"])
def test_damaged_checkpoints_are_refused_in_one_line(tmp_path, damage):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 1)
    if damage == "state":
        (path / "state.json").unlink()
    elif damage == "text":
        (path / "state.json").write_text('{"step')
    else:
        file = next(file for file in path.iterdir() if damage in file.name)
        file.write_bytes(file.read_bytes()[:10])
    one_line(checkpoints.restore, trackables())


def test_what_is_left_of_unfinished_checkpoints_is_ignored_and_removed(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    save(checkpoints, 1, 1)
    (tmp_path / ".writing-step-000000000002").mkdir()
    (tmp_path / ".writing-step-000000000002" / "variables").touch()
    assert checkpoints.names() == ["step-000000000001"]
    assert load(tmp_path) == 1
    save(checkpoints, 2, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == checkpoints.names()


def test_state_that_cannot_be_written_leaves_the_last_checkpoint(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    save(checkpoints, 1, 1)
    with pytest.raises(TypeError):
        checkpoints.save(2, trackables(2), {"value": object()})
    assert checkpoints.names() == ["step-000000000001"]
    assert load(tmp_path) == 1


@pytest.mark.parametrize("step", [7, 8], ids=["same", "next"])
def test_crash_at_any_point_leaves_the_last_complete_checkpoint(
    tmp_path, step, monkeypatch
):
    crash = Crash(monkeypatch)
    points = 0
    while True:
        directory = tmp_path / str(points)
        checkpoints = checkpoint.Checkpoints(directory, keep=1)
        save(checkpoints, 7, 1)
        crash.remaining = points
        try:
            save(checkpoints, step, 2)
            break
        except Killed:
            points += 1
        finally:
            crash.remaining = None
        assert load(directory) in (1, 2)
        for name in checkpoints.names():  # Older ones are whole too.
            assert load(directory, name) in (1, 2)
        # The next process goes on as if nothing had happened.
        save(checkpoint.Checkpoints(directory, keep=1), step, 3)
        assert load(directory) == 3
        assert len(list(directory.iterdir())) == 1
    assert points > 5


PROGRAM = """
import sys
import tensorflow as tf
from agents.tools import checkpoint
checkpoints = checkpoint.Checkpoints(sys.argv[1], keep=2)
module = tf.Module()
module.weights = tf.Variable(tf.zeros([3]))
module.count = tf.Variable(0, dtype=tf.int64)
value = 0
while True:
    value += 1
    module.weights.assign(tf.fill([3], float(value)))
    module.count.assign(value)
    checkpoints.save(value // 2, {"module": module}, {"value": value})
    print(value, flush=True)
"""


def test_kill_while_saving_leaves_the_last_complete_checkpoint(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / str(i))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for i in range(2)
    ]
    try:
        for i, child in enumerate(children):
            for _ in range(20):
                assert child.stdout.readline()
            time.sleep(random.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            *_, complete = child.stdout.read().split() or ["20"]
            assert load(tmp_path / str(i)) >= int(complete)
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()


def test_state_is_plain_json(tmp_path):
    name = save(checkpoint.Checkpoints(tmp_path), 1, 1, extra=[1.5])
    text = (tmp_path / name / "state.json").read_text()
    assert json.loads(text) == {"value": 1, "extra": [1.5]}
