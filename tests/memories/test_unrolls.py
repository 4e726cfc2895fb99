"""Memory of fixed unrolls."""

import pytest
import tensorflow as tf

from agents import memories


def make(rows=2, length=3):
    return memories.Unrolls(tf.TensorSpec([], tf.int32), rows, length)


def rows(*indices):
    return tf.constant(indices, tf.int32)


def append(memory, indices, numbers):
    memory.append(rows(*indices), tf.constant(numbers, tf.int32))


def test_full_after_all_rows_hold_all_steps():
    memory = make()
    for step in range(3):
        assert not memory.full()
        append(memory, [0, 1], [step, 10 + step])
    assert memory.full()
    data, mask = memory.data()
    assert data.numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert mask.numpy().all()


def test_unrolls_go_on_when_episodes_end_and_begin():
    memory = make()
    append(memory, [0, 1], [1, 2])
    memory.end(rows(0))
    memory.clear(rows(0))
    memory.clear(rows(0))  # Nothing of the episode in between was remembered.
    append(memory, [0, 1], [3, 4])
    memory.end(rows(0, 1))
    memory.clear(rows(0, 1))
    append(memory, [0, 1], [5, 6])
    assert memory.data()[0].numpy().tolist() == [[1, 3, 5], [2, 4, 6]]


@pytest.mark.parametrize("graph", [False, True])
def test_all_rows_begin_anew_if_an_episode_is_cut_off(graph):
    memory = make()
    clear = tf.function(memory.clear, autograph=False) if graph else memory.clear
    append(memory, [0, 1], [1, 2])
    memory.end(rows(0, 1))
    clear(rows(0, 1))
    append(memory, [0, 1], [3, 4])
    memory.end(rows(1))
    clear(rows(0, 1))  # The episode of the first row did not end.
    assert not memory.data()[1].numpy().any()
    for step in range(3):
        append(memory, [0, 1], [10 + step, 20 + step])
    assert memory.full()
    assert memory.data()[0].numpy().tolist() == [[10, 11, 12], [20, 21, 22]]
    memory.clear_data()
    clear(rows(0, 1))  # There is nothing left to be cut off.
    assert not memory.full()


def test_last_step_of_an_unroll_is_announced():
    memory = make()
    assert memory.last_of_unroll(rows(0, 1)).numpy().tolist() == [False, False]
    append(memory, [0, 1], [1, 2])
    append(memory, [1], [3])
    assert memory.last_of_unroll(rows(1, 0)).numpy().tolist() == [True, False]


def test_not_full_while_a_row_is_behind_and_more_raises():
    memory = make()
    for step in range(3):
        append(memory, [1], [step])
    append(memory, [0], [7])
    assert not memory.full()
    _, mask = memory.data()
    assert mask.numpy().tolist() == [[True, False, False], [True, True, True]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the memory"):
        append(memory, [1], [9])


def test_cleared_data_begins_new_unrolls():
    memory = make(length=2)
    append(memory, [0, 1], [1, 2])
    append(memory, [0, 1], [3, 4])
    memory.clear_data()
    assert not memory.full()
    append(memory, [0, 1], [5, 6])
    data, mask = memory.data()
    assert mask.numpy().tolist() == [[True, False]] * 2
    assert data.numpy()[:, 0].tolist() == [5, 6]


def test_nothing_is_kept_in_a_checkpoint():
    assert make().persistent == {}
