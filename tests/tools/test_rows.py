"""Rows of variables."""

import numpy as np
import tensorflow as tf

from agents.tools import rows


def test_all_rows_in_another_order_are_not_all_in_order():
    variable = rows.variables(tf.constant([1.0, 2.0, 3.0]))
    order = tf.constant([2, 0, 1])
    np.testing.assert_array_equal(rows.gather(variable, order), [3, 1, 2])
    rows.write(variable, order, tf.constant([7.0, 8.0, 9.0]))
    np.testing.assert_array_equal(variable, [8, 9, 7])
    everyone = tf.range(3)
    np.testing.assert_array_equal(rows.gather(variable, everyone), [8, 9, 7])
