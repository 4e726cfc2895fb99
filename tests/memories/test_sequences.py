"""Storage of growing sequences."""

import keras
import pytest
import tensorflow as tf

from agents import memories

SPECS = {"x": tf.TensorSpec([2]), "y": (tf.TensorSpec([], tf.int64),)}


def transition(*numbers):
    return {
        "x": tf.constant([[n, -n] for n in numbers], tf.float32),
        "y": (tf.constant(numbers, tf.int64),),
    }


def rows(*indices):
    return tf.constant(indices, tf.int32)


def numbers(memory):
    """Valid numbers of every row, which both leaves must agree on."""
    y = memory.data["y"][0].numpy()
    x = memory.data["x"].numpy()
    assert (x[..., 0] == y).all()
    assert (x[..., 1] == -y).all()
    return [
        row[:length].tolist() for row, length in zip(y, memory.lengths, strict=True)
    ]


def test_new_memory_is_empty():
    memory = memories.Sequences(SPECS, 3, 4)
    assert memory.data["x"].shape == (3, 4, 2)
    assert memory.data["y"][0].dtype == tf.int64
    assert numbers(memory) == [[], [], []]
    assert not memory.mask().numpy().any()
    assert not memory.trainable_variables


def test_rows_grow_on_their_own():
    memory = memories.Sequences(SPECS, 3, 4)
    memory.append(rows(0, 1, 2), transition(1, 2, 3))
    memory.append(rows(2), transition(4))
    memory.append(rows(2, 0), transition(5, 6))
    assert numbers(memory) == [[1, 6], [2], [3, 4, 5]]
    assert memory.lengths.numpy().tolist() == [2, 1, 3]
    assert memory.mask().numpy().tolist() == [
        [True, True, False, False],
        [True, False, False, False],
        [True, True, True, False],
    ]


def test_clear_empties_the_rows_it_names():
    memory = memories.Sequences(SPECS, 3, 4)
    memory.append(rows(0, 1, 2), transition(1, 2, 3))
    memory.clear(rows(2, 0))
    assert numbers(memory) == [[], [2], []]
    memory.append(rows(0), transition(7))
    assert numbers(memory) == [[7], [2], []]


def test_gather_and_replace_copy_whole_rows():
    source = memories.Sequences(SPECS, 3, 4)
    source.append(rows(0, 1, 2), transition(1, 2, 3))
    source.append(rows(2), transition(4))
    target = memories.Sequences(SPECS, 5, 4)
    target.append(rows(4), transition(9))
    target.replace(rows(3, 0), *source.gather(rows(2, 1)))
    assert numbers(target) == [[2], [], [], [3, 4], [9]]
    source.append(rows(2), transition(5))
    assert numbers(target)[3] == [3, 4]


@pytest.mark.parametrize("graph", [False, True])
def test_overflow_raises(graph):
    memory = memories.Sequences(SPECS, 2, 2)
    append = memory.append
    if graph:
        append = tf.function(memory.append, autograph=False)
    append(rows(0, 1), transition(1, 2))
    append(rows(1), transition(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the memory"):
        append(rows(0, 1), transition(4, 5))


def test_no_rows_are_no_change():
    memory = memories.Sequences(SPECS, 2, 2)
    memory.append(rows(0), transition(1))
    empty = {"x": tf.zeros([0, 2]), "y": (tf.zeros([0], tf.int64),)}
    memory.append(tf.zeros([0], tf.int32), empty)
    memory.clear(tf.zeros([0], tf.int32))
    assert numbers(memory) == [[1], []]


def test_all_is_saved_also_if_specs_belong_to_a_keras_layer(tmp_path):
    layer = keras.layers.Layer()
    layer.specs = {"x": tf.TensorSpec([2]), "y": {"z": tf.TensorSpec([])}}
    specs = {"head": layer.specs, "state": (tf.TensorSpec([3]),), "none": ()}
    memory = memories.Sequences(specs, rows=2, length=4)
    assert len(memory.variables) == 2  # All numbers in one, and the lengths.
    path = tf.train.Checkpoint(memory).write(str(tmp_path / "memory"))
    shapes = [shape for name, shape in tf.train.list_variables(path) if shape]
    assert sorted(shapes) == [[2], [2, 4, 6]]


def test_more_than_there_is_is_an_error_before_it_is_allocated():
    with pytest.raises(ValueError, match=r"^a memory of 1000000 times 1000000 steps"):
        memories.Unrolls(SPECS, 10**6, 10**6)
