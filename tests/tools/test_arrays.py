"""Leaves side by side in arrays, for NumPy and TensorFlow."""

import numpy as np
import tensorflow as tf

from agents.tools import arrays, spaces

SPECS = [spaces.Spec(x, np.dtype(np.float32)) for x in ((), (2,), (2, 2), (0,))]
LEAVES = [
    np.float32([1, 2]),
    np.float32([[3, 4], [5, 6]]),
    np.arange(8, dtype=np.float32).reshape(2, 2, 2),
    np.zeros([2, 0], np.float32),
]
JOINED = [[1, 3, 4, 0, 1, 2, 3], [2, 5, 6, 4, 5, 6, 7]]


def test_arrays_and_tensors_are_split_in_the_same_way():
    layout = arrays.Layout(SPECS)
    assert (layout.width, layout.spec.shape) == (7, (7,))
    joined = layout.join(LEAVES)
    assert joined.numpy().tolist() == JOINED
    for whole in (joined, joined.numpy(), tf.Variable(joined)):
        for one, other in zip(layout.split(whole), LEAVES, strict=True):
            np.testing.assert_array_equal(one, other)


def test_arrays_are_split_into_views():
    whole = np.zeros([2, 9], np.float32)[:, 1:8]
    for view, leaf in zip(arrays.Layout(SPECS).split(whole), LEAVES, strict=True):
        view[...] = leaf
    assert whole.tolist() == JOINED


def test_a_leaf_that_is_alone_keeps_its_shape():
    layout = arrays.Layout([spaces.Spec((2, 2), np.dtype(np.uint8))], np.uint8)
    leaf = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    assert (layout.width, layout.spec.shape) == (4, (2, 2))
    assert layout.split(leaf)[0] is leaf
    assert layout.join([leaf]).numpy().tolist() == leaf.tolist()


def test_structures_become_one_tensor_for_each_dtype():
    specs = {
        "image": tf.TensorSpec([2, 2], tf.uint8),
        "number": tf.TensorSpec([], tf.float32),
        "flags": (tf.TensorSpec([2], tf.bool), tf.TensorSpec([3], tf.float32)),
    }
    packing = arrays.Packing(specs)
    assert [(x.shape, x.dtype) for x in packing.specs] == [
        ((6,), np.float32),
        ((2, 2), np.uint8),
    ]
    given = {
        "image": tf.ones([5, 4, 2, 2], tf.uint8),
        "number": tf.fill([5, 4], 2.0),
        "flags": (tf.ones([5, 4, 2], tf.bool), tf.fill([5, 4, 3], 3.0)),
    }
    floats, images = packing.pack(given)
    assert floats.numpy()[3, 3].tolist() == [1, 1, 3, 3, 3, 2]
    found = packing.unpack([floats, images])
    tf.nest.map_structure(np.testing.assert_array_equal, found, given)
    assert found["flags"][0].dtype == tf.bool

    @tf.function(input_signature=[tf.TensorSpec([None, None, 6])])
    def unknown_sizes(floats):
        return packing.pack(packing.unpack([floats, images]))[0]

    np.testing.assert_array_equal(unknown_sizes(floats), floats)
