"""Gradients of one device or several."""

import keras
import tensorflow as tf

from agents.optimizers import replicas


def test_gradient_of_variables_that_are_not_used_is_zero():
    x, y = keras.Variable([1.0, 2.0]), keras.Variable([3.0])
    gradients, loss, metrics = replicas.gradient(
        lambda items: (items * tf.reduce_sum(x.value**2), {"a": items}), [x, y], 2.0
    )
    assert [g.numpy().tolist() for g in gradients] == [[4, 8], [0]]
    assert float(loss) == 10
    assert metrics == {"a": 2}
