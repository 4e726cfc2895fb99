"""Memory of unrolls that wait before training."""

import pytest
import tensorflow as tf

from agents import memories


def make(size, rows=2, length=3):
    return memories.Queue(tf.TensorSpec([], tf.int32), rows, length, size)


def fill(memory, number, length=3):
    """A batch whose first row begins with the number, and the second with 10 more."""
    for step in range(length):
        memory.append(tf.range(2), tf.constant([number + step, number + 10 + step]))


def learn(memory):
    """Numbers of the oldest batch, if there is one; the queue advances."""
    assert memory.full()
    numbers = None
    if memory.ready():
        data, mask = memory.oldest()
        assert mask.numpy().all()
        numbers = data.numpy().tolist()
    memory.advance()
    assert not memory.full()
    return numbers


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_batches_are_learned_from_in_order_and_size_batches_late(size):
    memory = make(size)
    learned = []
    for batch in range(12):
        fill(memory, 100 * batch)
        learned.append(learn(memory))
    assert learned[:size] == [None] * size
    for batch, data in enumerate(learned[size:]):
        start = 100 * batch
        expected = [[start + row + step for step in range(3)] for row in (0, 10)]
        assert data == expected


def test_episodes_that_are_cut_off_spoil_no_waiting_batch():
    memory = make(1)
    fill(memory, 0)
    learn(memory)
    memory.append(tf.range(2), tf.constant([7, 8]))
    memory.clear(tf.range(2))
    fill(memory, 100)
    assert learn(memory) == [[0, 1, 2], [10, 11, 12]]


def test_checkpoint_holds_the_waiting_batches(tmp_path):
    def persistent(memory):
        return tf.train.Checkpoint(**memory.persistent)

    memory, other = make(2), make(2)
    for batch in range(3):
        fill(memory, 100 * batch)
        memory.advance()
    path = persistent(memory).write(str(tmp_path / "x"))
    persistent(other).read(path).assert_consumed()
    for each in (memory, other):
        fill(each, 300)
        assert learn(each)[0] == [100, 101, 102]
        fill(each, 400)
        assert learn(each)[0] == [200, 201, 202]
        fill(each, 500)
        assert learn(each)[0] == [300, 301, 302]
    assert make(0).persistent == {}
