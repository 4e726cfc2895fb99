"""Checkpoints appear as a whole or not at all, after any failure."""

import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

from agents.tools import checkpoint, files

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checkpoint, "BLOCK_BYTES", 64)


class Killed(BaseException):
    """Stands for the end of the process."""


class Crash:
    """Ends the process at one of the changes that it makes to directories."""

    def __init__(self, monkeypatch):
        self.remaining = None
        for name in ("rename", "mkdir", "unlink", "rmdir", "link", "fsync"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, function):
        def wrapper(*args, **kwargs):
            if self.remaining is not None:
                self.remaining -= 1
                if self.remaining < 0:
                    raise Killed
            return function(*args, **kwargs)

        return wrapper


class Learner(tf.Module):
    """Has two layers, an optimizer of the first one, and what needs no checkpoint."""

    def __init__(self, *persistent):
        super().__init__()
        self.first, self.second = (keras.layers.Dense(2, name=x) for x in "ab")
        self.frozen = keras.layers.Dense(2, trainable=False)
        for layer in (self.first, self.second, self.frozen):
            layer.build([None, 3])
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.first.trainable_variables)
        self.state = tf.Variable(tf.zeros([7]))
        self.count = tf.Variable(0, trainable=False)
        self.names = persistent

    def persistent(self):
        return {name: getattr(self, name) for name in self.names}


@pytest.mark.parametrize(
    ("held", "lost"),
    [
        (("first", "second"), set()),
        (("first", "count"), {"b/kernel", "b/bias"}),
        (("second",), {"a/kernel", "a/bias"}),
        ((), {"a/kernel", "a/bias", "b/kernel", "b/bias"}),
        # An optimizer is saved with the variables that it moves.
        (("optimizer", "second"), set()),
        (("optimizer",), {"b/kernel", "b/bias"}),
    ],
)
def test_layers_that_checkpoints_lose_are_named(held, lost):
    assert set(checkpoint.forgotten(Learner(*held))) == lost


def trackables(value=0.0, size=3):
    module = tf.Module()
    module.weights = tf.Variable(tf.fill([size], float(value)))
    module.count = tf.Variable(int(value), dtype=tf.int64)
    rows = tf.range(size)[:, tf.newaxis] % 4 + int(value) // 2
    table = tf.Variable(tf.tile(rows, [1, 16]))  # A block for each row.
    return {"module": module, "memory": {"tables": [table]}}


def save(checkpoints, step, value, **state):
    return checkpoints.save(step, trackables(value), {"value": value, **state})


def load(directory, name=None):
    """Number in a checkpoint, which all parts of it must agree on."""
    loaded = trackables(-1)
    state = checkpoint.Checkpoints(directory).restore(loaded, name)
    weights = loaded["module"].weights.numpy()
    assert (weights == state["value"]).all()
    assert loaded["module"].count.numpy() == state["value"]
    expected = trackables(state["value"])["memory"]["tables"][0]
    np.testing.assert_array_equal(loaded["memory"]["tables"][0], expected)
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


@pytest.mark.parametrize("value", [np.zeros(2), np.float32(1), 3, "x"])
def test_values_that_would_not_be_restored_are_refused(tmp_path, value):
    given = {"net": {"layers": [tf.Variable(0), value]}}
    text = one_line(checkpoint.Checkpoints(tmp_path / "x").save, 1, given, {})
    assert text.startswith("net/layers/1 of a checkpoint is of type ")
    assert "use variables" in text
    assert checkpoint.Checkpoints(tmp_path / "x").names() == []


@pytest.mark.parametrize("name", ["a[1]", "a[1", "a*b?", "a\\b", "ü b", "{c}", "~"])
def test_directories_have_any_name(tmp_path, name):
    save(checkpoint.Checkpoints(tmp_path / name), 1, 7)
    assert load(tmp_path / name) == 7
    other = {**trackables(), "more": tf.Variable(0)}
    text = one_line(checkpoint.Checkpoints(tmp_path / name).restore, other)
    assert "does not fit this config" in text


def test_files_of_others_are_neither_read_nor_removed(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1, 1)
    (tmp_path / "step-000000000001.tar.gz").touch()
    (tmp_path / ".notes-step-000000000001").touch()
    shutil.copytree(tmp_path / "step-000000000001", tmp_path / "step-1-copy")
    for step in (2, 3):
        save(checkpoints, step, step)
    assert load(tmp_path) == 3
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        ".notes-step-000000000001",
        "step-000000000001.tar.gz",
        "step-000000000003",
        "step-1-copy",
    ]


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


def test_best_is_kept_and_found_by_its_name(tmp_path):
    directory = checkpoint.Checkpoints(tmp_path, keep=2)
    value = tf.Variable(0)
    for step in range(6):
        value.assign(step)
        best = "step-000000000003" if step >= 3 else "step-000000000000"
        directory.save(step, {"value": value}, {"step": step}, best)
        assert directory.restore({"value": value}, "best") == {"step": step // 3 * 3}
        assert value.numpy() == step // 3 * 3
    assert directory.names() == [f"step-{x:012d}" for x in (3, 4, 5)]
    assert directory.state() == {"step": 5}


def test_best_is_found_and_replaced_in_a_copy_that_has_followed_links(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    names = [checkpoint.name_of(step) for step in range(4)]
    for step in range(2):
        state = {"value": step}
        checkpoint.Checkpoints(old).save(step, trackables(step), state, names[0])
    shutil.copytree(old, new)
    assert not (new / "best").is_symlink()
    copied = checkpoint.Checkpoints(new, keep=2)
    assert copied.names() == names[:2]
    assert [load(new, "best"), load(new)] == [0, 1]
    expected = f"there are {names[0]}, {names[1]}, best"
    assert expected in one_line(copied.state, "step")
    copied.mark(names[1])
    assert load(new, "best") == 1
    for step in (2, 3):
        copied.save(step, trackables(step), {"value": step}, names[2])
        assert load(new, "best") == 2
    assert sorted(x.name for x in new.iterdir()) == ["best", *names[2:]]
    assert load(old, "best") == 0


def test_without_a_best_one(tmp_path):
    directory = checkpoint.Checkpoints(tmp_path)
    directory.save(1, {"value": tf.Variable(0)}, {})
    expected = "no checkpoint 'best' in .*; there are step-000000000001"
    with pytest.raises(checkpoint.CheckpointError, match=expected):
        directory.restore({}, "best")


def test_best_one_that_was_deleted_is_told(tmp_path):
    directory = checkpoint.Checkpoints(tmp_path)
    first, second = map(checkpoint.name_of, range(2))
    for step in range(2):
        directory.save(step, {"value": tf.Variable(0)}, {}, first)
    shutil.rmtree(tmp_path / first)
    text = one_line(directory.state, "best")
    assert f"no checkpoint 'best -> {first}' in" in text
    assert text.endswith(f"there are {second}.")


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


@pytest.mark.parametrize(
    "file",
    [
        "state.json",
        "blocks.json",
        "sha1sums",
        "variables.index",
        "variables.data-00000-of-00001",
        "memory.index",
    ],
)
@pytest.mark.parametrize("missing", [True, False])
def test_damaged_checkpoints_are_refused_in_one_line(tmp_path, file, missing):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 1)
    damage(path / file, missing)
    text = one_line(checkpoints.restore, trackables())
    assert text.startswith(f"checkpoint {path} is damaged: ")
    assert text.endswith("delete the checkpoint to go on from the one before.")


@pytest.mark.parametrize("file", ["state.json", "blocks.json"])
@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"value": 2}', "\xff"])
def test_other_json_is_refused_in_one_line(tmp_path, file, content):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 1)
    (path / file).write_text(content, encoding="latin-1")
    text = one_line(checkpoints.restore, trackables())
    assert f"{path} is damaged: {file} is missing or has changed" in text


def test_checkpoint_that_is_no_directory(tmp_path):
    (tmp_path / "step-000000000001").touch()
    text = one_line(checkpoint.Checkpoints(tmp_path).restore, trackables())
    assert text.startswith(f"cannot read checkpoint {tmp_path / 'step-000000000001'}: ")


def test_sums_are_those_of_the_usual_tool(tmp_path):
    path = tmp_path / save(checkpoint.Checkpoints(tmp_path), 1, 1)
    command = ["sha1sum", "--check", "--strict", "sha1sums"]
    output = subprocess.run(command, cwd=path, capture_output=True, check=True).stdout
    assert output == b"blocks.json: OK\nstate.json: OK\n"


def test_state_is_read_alone(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 7)
    save(checkpoints, 2, 8)
    for file in (*path.glob("*.block"), *path.glob("variables.*")):
        file.unlink()
    assert checkpoints.state(path.name) == {"value": 7}
    assert checkpoints.state() == {"value": 8}
    assert "no checkpoint 'x'" in one_line(checkpoints.state, "x")


@pytest.mark.parametrize("step", [1, 2], ids=["same", "next"])
@pytest.mark.parametrize("damaged", [True, False])
def test_checkpoint_that_is_replaced_while_it_is_read(
    tmp_path, monkeypatch, step, damaged
):
    """All that is read is of one checkpoint, though a run goes on beside."""
    checkpoints = checkpoint.Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1, 1)
    original, others = checkpoint._json, []

    def replace(path, name):
        if not others:
            others.append(save(checkpoint.Checkpoints(tmp_path, keep=1), step, 2))
            if not damaged:
                return {"value": 1} if name == "state.json" else original(path, name)
        return original(path, name)

    monkeypatch.setattr(checkpoint, "_json", replace)
    assert load(tmp_path) == 2


def damage(file, missing):
    """Remove a file, or its end."""
    if missing:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:10])


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


# Full disks.


@pytest.mark.parametrize("large", [False, True])
def test_full_disk_is_one_line_that_says_how_much_is_needed(
    tmp_path, monkeypatch, full_disk, large
):
    """Which is what the checkpoint takes on disk when there is room."""
    monkeypatch.setattr(checkpoint, "BLOCK_BYTES", 1 << (12 if large else 30))

    def create(value):
        table = tf.range(100)[:, tf.newaxis] // 8 * [[value] * 512]
        variables = [tf.Variable(value) for _ in range(40)]
        return {"memory": {"table": tf.Variable(table)}, "more": variables}

    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(1, create(0), {})
    with full_disk(3000), pytest.raises(files.WriteError) as error:
        checkpoints.save(2, create(1), {})
    text = str(error.value)
    path = tmp_path / "step-000000000002"
    assert text.startswith(f"cannot write {path}: File too large; it needs ")
    assert text.endswith(" are free.")
    assert "\n" not in text
    assert [x.name for x in tmp_path.iterdir()] == ["step-000000000001"]
    restored = create(7)
    checkpoints.restore(restored)
    assert not restored["memory"]["table"].numpy().any()
    checkpoints.save(2, create(1), {})
    new = [path, *(x for x in path.iterdir() if x.stat().st_nlink < 2)]
    taken = sum(x.stat().st_blocks for x in new) * 512
    needed = float(re.search(r"needs ([\d.]+) kB", text)[1]) * 1000
    assert taken - 100 < needed < taken + 4 * 4096


@pytest.mark.parametrize("name", ["mkdir", "link", "fsync", "rename", "rmdir"])
def test_error_at_any_point_leaves_the_last_complete_checkpoint(
    tmp_path, monkeypatch, name
):
    original, points, remaining = getattr(os, name), 0, None

    def wrapper(*args, **kwargs):
        nonlocal remaining
        if remaining is not None:
            remaining -= 1
            if remaining < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*args, **kwargs)

    monkeypatch.setattr(os, name, wrapper)
    while True:
        directory = tmp_path / str(points)
        checkpoints = checkpoint.Checkpoints(directory, keep=1)
        save(checkpoints, 7, 1)
        remaining = points
        try:
            save(checkpoints, 8, 2)
            break
        except (OSError, files.WriteError):
            points += 1
        finally:
            remaining = None
        assert load(directory) in (1, 2)
        save(checkpoints, 8, 3)
        assert load(directory) == 3
        assert len(list(directory.iterdir())) == 1
    assert points or name == "link"  # Without links, blocks are copied.


# Large variables.


def blocks(path):
    """Block files of a checkpoint: name to inode."""
    return {file.name: file.stat().st_ino for file in path.glob("*.block")}


def test_only_blocks_that_changed_are_written(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    table = tf.Variable(tf.tile(tf.range(100)[:, tf.newaxis], [1, 4]))  # 4 per block
    number = tf.Variable(0)
    saved = {"memory": {"table": table, "number": number}}
    first = tmp_path / checkpoints.save(1, saved, {})
    assert len(blocks(first)) == 25
    assert sum(x.stat().st_size for x in first.glob("*.block")) == 1600
    assert (first / "memory.data-00000-of-00001").stat().st_size < 1600
    table.scatter_nd_update([[2], [3], [51]], tf.fill([3, 4], -1))
    number.assign_add(1)
    second = tmp_path / checkpoints.save(2, saved, {})
    old, new = blocks(first), blocks(second)
    assert len(new) == 25
    assert len(set(new.values()) - set(old.values())) == 2
    third = tmp_path / checkpoints.save(3, saved, {})
    assert blocks(third) == new
    shutil.rmtree(first)
    shutil.rmtree(third)
    copy = shutil.copytree(second, tmp_path / "step-000000000009")
    shutil.rmtree(second)
    table.assign(tf.zeros_like(table))
    number.assign(0)
    checkpoints.restore(saved, copy.name)
    expected = np.arange(100)
    expected[[2, 3, 51]] = -1
    np.testing.assert_array_equal(table, np.tile(expected[:, None], 4))
    assert number.numpy() == 1


def test_checkpoints_do_not_need_each_other(tmp_path):
    for kept in range(4):
        checkpoints = checkpoint.Checkpoints(tmp_path / str(kept))
        names = [save(checkpoints, step, step) for step in range(4)]
        for name in names[:kept] + names[kept + 1 :]:
            shutil.rmtree(tmp_path / str(kept) / name)
        assert load(tmp_path / str(kept)) == kept


def test_equal_blocks_are_one_file(tmp_path):
    table = tf.Variable(tf.zeros([1000, 16]))
    other = tf.Variable(tf.zeros([16, 1000], tf.int16))
    path = tmp_path / "step-000000000001"
    checkpoint.Checkpoints(tmp_path).save(1, {"a": table, "b": other}, {})
    assert sorted(x.stat().st_size for x in path.glob("*.block")) == [64, 2000]


def test_file_systems_without_links(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    checkpoints = checkpoint.Checkpoints(tmp_path)
    paths = [tmp_path / save(checkpoints, step, 1) for step in range(3)]
    assert len({x for path in paths for x in blocks(path).values()}) == 3 * 3
    shutil.rmtree(paths[0])
    shutil.rmtree(paths[2])
    assert load(tmp_path) == 1


@pytest.mark.parametrize("missing", [True, False])
def test_damaged_blocks_are_refused_and_not_linked(tmp_path, missing):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 1)
    file = sorted(path.glob("*.block"))[1]
    damage(file, missing)
    text = one_line(checkpoints.restore, trackables())
    assert text == (
        f"checkpoint {path} is damaged: {file.name} is missing or has changed; "
        "delete the checkpoint to go on from the one before."
    )
    save(checkpoints, 2, 1)
    assert load(tmp_path) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"memory": {"tables": [tf.zeros([8, 16], tf.int32)]}},
            "memory/tables/0 is int32 [3, 16] there, but int32 [8, 16] here.",
        ),
        (
            {"memory": {"tables": [tf.zeros([3, 16])]}},
            "memory/tables/0 is int32 [3, 16] there, but float32 [3, 16] here.",
        ),
        (
            {"memory": {"tables": [tf.zeros([16])]}},
            "memory/tables/0 is int32 [3, 16] there, but small or missing here.",
        ),
        (
            {"more": tf.zeros([3, 16])},
            "more is small or missing there, but float32 [3, 16] here.",
        ),
    ],
)
def test_large_variables_of_another_model_are_refused(tmp_path, change, text):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 1)
    change = tf.nest.map_structure(tf.Variable, change)
    message = one_line(checkpoints.restore, trackables() | change)
    assert message == f"checkpoint {path} does not fit this config: {text}"


DTYPES = (
    *(tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int32, tf.int64, tf.uint64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda x: x.name)
def test_large_variables_of_all_types_are_restored_bit_for_bit(tmp_path, dtype):
    generator = np.random.default_rng(0)
    checkpoints = checkpoint.Checkpoints(tmp_path)
    for step, shape in enumerate(([200], [101, 3], [5, 7, 11], [1, 300], [300, 1])):
        count = int(np.prod(shape)) * dtype.size
        raw = generator.integers(0, 2 if dtype == tf.bool else 256, count, np.uint8)
        variable = tf.Variable(raw.view(dtype.as_numpy_dtype).reshape(shape))
        checkpoints.save(step, {"x": {"y": variable}}, {})
        other = tf.Variable(tf.zeros(shape, dtype))
        checkpoints.restore({"x": {"y": other}})
        assert other.numpy().tobytes() == raw.tobytes()


def test_names_are_those_of_any_nesting(tmp_path):
    def create(value):
        module = tf.Module()  # Which wraps structures.
        module.parts = {
            "list": [tf.Variable(tf.fill([50], value)), tf.Variable(value)],
            "tuple": (tf.Variable(value), tf.Variable(tf.fill([60], value))),
            "empty": [],
        }
        return module.parts

    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / checkpoints.save(1, {"a": create(3.0)}, {})
    index = json.loads((path / "blocks.json").read_text())
    assert list(index) == ["a/list/0", "a/tuple/1"]
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = dict(tf.train.list_variables(str(path / "variables")))
    assert {f"a/list/1{suffix}", f"a/tuple/0{suffix}"} < set(names)
    other = create(0.0)
    checkpoints.restore({"a": other})
    for variable in tf.nest.flatten(other):
        assert (variable.numpy() == 3).all()


def test_rest_is_restored_without_the_memory(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    path = tmp_path / save(checkpoints, 1, 7)
    for file in (*path.glob("*.block"), *path.glob("memory.*")):
        file.unlink()
    agent = trackables(0)
    agent["memory"] = {"tables": [tf.Variable(tf.fill([5], 9))], "more": tf.Variable(9)}
    assert checkpoints.restore(agent, memory=False) == {"value": 7}
    assert (agent["module"].weights.numpy() == 7).all()
    assert (agent["memory"]["tables"][0].numpy() == 9).all()
    del agent["memory"]
    assert checkpoints.restore(agent, memory=False) == {"value": 7}
    one_line(checkpoints.restore, agent)


@pytest.mark.parametrize("case", ["shape", "missing", "additional", "large"])
def test_rest_is_as_strict_without_the_memory(tmp_path, case):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    agent = trackables(1)
    agent["large"] = tf.Variable(tf.zeros([50]))
    checkpoints.save(1, agent, {})
    if case == "shape":
        agent["module"] = trackables(size=4)["module"]
    elif case == "missing":
        del agent["module"].count
    elif case == "additional":
        agent["more"] = tf.Variable(0.0)
    else:
        del agent["large"]
    text = one_line(lambda: checkpoints.restore(agent, memory=False))
    assert "step-000000000001 does not fit this config" in text


MEMORY = """
import json
import pathlib
import sys
import tensorflow as tf
from agents.tools import checkpoint


def megabytes(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(name)[1].split()[0]) // 1024


def peak(function):
    before = megabytes("VmRSS:")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Forget the peak so far.
    function()
    return megabytes("VmHWM:") - before


def change():
    "Write one row as a replay memory does: in place, unless someone has the value."
    table.scatter_update(tf.IndexedSlices(tf.ones([1, 512], tf.uint64), [7]))


checkpoints = checkpoint.Checkpoints(sys.argv[1])
table = tf.Variable(tf.zeros([1 << 16, 512], tf.uint64))
for row in range(0, 1 << 16, 64):
    values = tf.fill([64, 512], tf.cast(row, tf.uint64))
    table.scatter_update(tf.IndexedSlices(values, row + tf.range(64)))
saved = {"memory": [table]}
peaks = [
    peak(lambda: checkpoints.save(1, saved, {})),
    peak(change),
    peak(lambda: checkpoints.restore(saved)),
    peak(change),
    peak(lambda: checkpoints.save(2, saved, {})),
    peak(change),
    peak(lambda: table.read_value()),  # Which makes a copy.
]
print(json.dumps(peaks))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_second_copy_is_held(tmp_path):
    """In a process of its own, which has no free memory that copies could reuse."""
    program = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    *peaks, copy = json.loads(program.stdout)
    assert len(list((tmp_path / "step-000000000001").glob("*.block"))) == 64
    assert copy > 250
    assert max(peaks) < 32, peaks


def test_variables_stay_as_dense_as_they_were(tmp_path):
    """Variables changed in parts would be copied at each later reading."""
    dense = tf.Variable(tf.ones([100]))
    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(1, {"x": dense}, {})
    checkpoints.restore({"x": dense})
    read = [np.asarray(memoryview(dense.read_value())) for _ in range(2)]
    assert np.shares_memory(*read)


# Layers of Keras.


def layers(seed):
    """Layers in all the places of a mapping, with variables of all kinds."""
    parts = [
        keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotNormal(seed)),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5, seed=seed),
    ]
    for layer in parts:
        layer.build([None, 3])
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    return {"layer": parts[0], "parts": parts[1:], "nested": {"model": (model,)}}


def variables_of(tree):
    found = (tree["layer"], *tree["parts"], *tree["nested"]["model"])
    return [variable for layer in found for variable in layer.variables]


def test_layers_stand_for_all_their_variables(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    saved, other = layers(1), layers(2)
    for number, variable in enumerate(variables_of(saved)):
        variable.assign(np.full(variable.shape, number + 1))
    checkpoints.save(1, saved, {})
    before = [x.numpy() for x in variables_of(saved)]
    assert len(before) == 2 + 4 + 1 + 2
    checkpoints.restore(other)
    for ours, theirs in zip(variables_of(other), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    del other["parts"][1]
    assert "does not fit" in one_line(checkpoints.restore, other)


# Real kills.


PROGRAM = """
import os
import sys
import tensorflow as tf
from agents.tools import checkpoint

checkpoint.BLOCK_BYTES = 1 << 14


def work(directory):
    checkpoints = checkpoint.Checkpoints(directory, keep=2)
    ring = tf.Variable(tf.zeros([64, 4096], tf.int32))
    filled = tf.Variable(tf.zeros([16, 4096], tf.int32))
    count = tf.Variable(0, dtype=tf.int64)
    saved = {"count": count, "memory": {"ring": ring, "filled": filled}}
    value = checkpoints.restore(saved)["value"] if checkpoints.names() else 0
    print(os.getpid(), flush=True)
    while True:
        value += 1
        count.assign(value)
        ring.scatter_nd_update([[value % 64]], tf.fill([1, 4096], value))
        filled.assign(tf.fill([16, 4096], value) + tf.range(16)[:, None])
        checkpoints.save(value // 2, saved, {"value": value})
        print(value, flush=True)


while sys.stdin.readline():
    child = os.fork()  # Of a process that has imported TensorFlow but not used it.
    if not child:
        work(sys.argv[1])
    os.waitpid(child, 0)
    print("killed", flush=True)
"""


def load_ring(directory):
    """Value of the newest checkpoint, which all of its variables must agree on."""
    ring = tf.Variable(tf.zeros([64, 4096], tf.int32))
    filled = tf.Variable(tf.zeros([16, 4096], tf.int32))
    count = tf.Variable(0, dtype=tf.int64)
    loaded = {"count": count, "memory": {"ring": ring, "filled": filled}}
    value = checkpoint.Checkpoints(directory).restore(loaded)["value"]
    assert count.numpy() == value
    rows = value - (value - np.arange(64)) % 64
    expected = np.broadcast_to(np.maximum(rows, 0)[:, None], [64, 4096])
    np.testing.assert_array_equal(ring, expected)
    expected = np.broadcast_to(value + np.arange(16)[:, None], [16, 4096])
    np.testing.assert_array_equal(filled, expected)
    return value


def kill_while_it_saves(pid, directory):
    """Kill a process that has been stopped with a checkpoint half written."""
    process = psutil.Process(pid)
    while True:
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        if list(directory.glob(".writing-*")):
            process.kill()
            return
        process.resume()
        time.sleep(random.uniform(0, 0.01))


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_at_any_moment_of_a_save_leaves_the_last_complete_checkpoint(
    tmp_path, kills
):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        for number in range(kills):
            print(file=program.stdin, flush=True)
            child = int(program.stdout.readline())
            complete, times = [], []
            for _ in range(5):
                complete.append(program.stdout.readline())
                times.append(time.monotonic())
            duration = (times[-1] - times[1]) / 3  # Of one save.
            time.sleep(duration * (number + 0.5) / kills)
            if number % 2:
                kill_while_it_saves(child, tmp_path)
            else:
                os.kill(child, signal.SIGKILL)
            complete += iter(program.stdout.readline, "killed\n")
            assert number % 2 == 0 or list(tmp_path.glob(".writing-*"))
            assert load_ring(tmp_path) - int(complete[-1]) in (0, 1)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def test_state_is_plain_json(tmp_path):
    name = save(checkpoint.Checkpoints(tmp_path), 1, 1, extra=[1.5])
    text = (tmp_path / name / "state.json").read_text()
    assert json.loads(text) == {"value": 1, "extra": [1.5]}
