"""Memory of whole episodes."""

import contextlib

import pytest
import tensorflow as tf

from agents import memories
from agents.tools import conditional


def make(rows=3, capacity=2, length=4):
    return memories.Episodes(tf.TensorSpec([], tf.int32), rows, capacity, length)


def rows(*indices):
    return tf.constant(indices, tf.int32)


def append(memory, indices, numbers):
    memory.append(rows(*indices), tf.constant(numbers, tf.int32))


def finished(memory):
    data, mask = memory.data()
    assert mask.dtype == tf.bool
    return [tf.boolean_mask(x, m).numpy().tolist() for x, m in zip(data, mask)]  # noqa: B905


def test_finished_episodes_are_kept_in_the_order_of_their_ends():
    memory = make()
    append(memory, [0, 1, 2], [1, 2, 3])
    append(memory, [0, 1, 2], [4, 5, 6])
    assert finished(memory) == [[], []]
    memory.end(rows(2))
    assert finished(memory) == [[3, 6], []]
    assert not memory.full()
    append(memory, [0, 1], [7, 8])
    memory.end(rows(0))
    assert finished(memory) == [[3, 6], [1, 4, 7]]
    assert memory.full()


def test_running_episodes_go_on_until_cleared():
    memory = make()
    append(memory, [0, 1], [1, 2])
    memory.end(rows(0))
    memory.clear(rows(0))
    append(memory, [0, 1], [3, 4])
    memory.end(rows(0, 1))
    assert finished(memory) == [[1], [3]]  # The third is one too many.
    memory.clear_data()
    memory.end(rows(1))
    assert finished(memory) == [[2, 4], []]


def test_episodes_that_are_cut_off_are_dropped():
    memory = make()
    append(memory, [0], [1])
    memory.clear(rows(0, 1, 2))  # A forced reset.
    append(memory, [0], [2])
    memory.end(rows(0))
    assert finished(memory) == [[2], []]


@pytest.mark.parametrize("jit", [None, False, True])
def test_excess_episodes_are_dropped(jit):
    memory = make(rows=4, capacity=3)

    def end(*indices):
        selected = tf.reduce_any(tf.range(4) == tf.constant(indices)[:, None], 0)
        return int(select(selected))

    def select(selected):
        with conditional.program() if jit else contextlib.nullcontext():
            conditional.for_rows(memory.end, tf.range(4), selected)
        return memory.count

    if jit is not None:
        select = tf.function(select, autograph=False, jit_compile=jit)
    append(memory, [0, 1, 2, 3], [1, 2, 3, 4])
    assert end(1, 3) == 2
    assert end(0, 1, 2) == 3
    assert finished(memory) == [[2], [4], [1]]
    assert memory.full()
    assert end(2) == 3
    assert finished(memory) == [[2], [4], [1]]


def test_cleared_data_leaves_no_trace():
    memory = make(rows=2, capacity=2)
    append(memory, [0], [1])
    append(memory, [0], [2])
    append(memory, [1], [3])
    memory.end(rows(0, 1))
    memory.clear_data()
    assert finished(memory) == [[], []]
    assert not memory.full()
    memory.clear(rows(0))
    append(memory, [0], [9])
    memory.end(rows(0))
    assert finished(memory) == [[9], []]


def test_longest_episode_fits_and_a_longer_one_raises():
    memory = make(length=3)
    for number in (1, 2, 3):
        append(memory, [1], [number])
    memory.end(rows(1))
    assert finished(memory) == [[1, 2, 3], []]
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the memory"):
        append(memory, [1], [4])


def test_no_step_is_the_last_of_an_unroll():
    memory = make(length=1)
    assert memory.last_of_unroll(rows(0, 2)).numpy().tolist() == [False, False]


def test_checkpoint_holds_finished_episodes_only(tmp_path):
    memory = make()
    append(memory, [0, 1], [1, 2])
    memory.end(rows(0))
    path = tf.train.Checkpoint(**memory.persistent).write(str(tmp_path / "x"))
    other = make()
    append(other, [1], [7])
    tf.train.Checkpoint(**other.persistent).read(path).assert_consumed()
    assert finished(other) == [[1], []]
    other.end(rows(1))
    assert finished(other) == [[1], [7]]
    assert other.full()
