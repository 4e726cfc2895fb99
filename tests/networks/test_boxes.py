"""Boxes with bounds."""

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gs

from agents.networks import boxes


def test_squashed_policy_needs_a_bounded_box():
    assert boxes.size_of(gs.Box(-2, 2, (2, 3))) == 6


def test_components_with_one_value_are_zero():
    space = gs.Box(np.float32([-1, 0.5]), np.float32([3, 0.5]))
    unit = boxes.unscale(tf.constant([[3.0, 0.5], [1.0, 0.5]]), space)
    np.testing.assert_allclose(unit, [[1, 0], [0, 0]])
    np.testing.assert_allclose(boxes.scale(unit, space), [[3, 0.5], [1, 0.5]])


def test_actions_beyond_the_bounds_are_at_the_bounds():
    space = gs.Box(np.float32([-1, 0]), np.float32([3, 10]))
    unit = boxes.unscale(tf.constant([[5.0, -0.1], [-9.0, 20.0]]), space)
    np.testing.assert_array_equal(unit, [[1, -1], [-1, 1]])
