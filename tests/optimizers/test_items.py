"""Items of losses: seeds and orders."""

import numpy as np
import pytest
import tensorflow as tf

from agents.optimizers import items as items_

SEED = tf.constant([1, 2])


def test_fold_changes_the_seed_only():
    assert items_.fold({"x": 1}, 0) == {"x": 1}
    seeds = [items_.fold({"x": 1, "seed": SEED}, i) for i in (0, 1, 1)]
    assert [x["x"] for x in seeds] == [1, 1, 1]
    first, second, third = (tuple(x["seed"].numpy()) for x in seeds)
    assert first != second == third


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_order_is_the_same_with_and_without_xla(count):
    order = tf.function(lambda: items_.order(SEED, count), jit_compile=True)().numpy()
    assert sorted(order) == list(range(count))
    np.testing.assert_array_equal(items_.order(SEED, tf.constant(count)), order)
    if count > 2:
        assert (order != range(count)).any()
