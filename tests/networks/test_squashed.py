"""Policies that squash their actions."""

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gs

from agents.networks import squashed
from agents.networks.config import NetworkConfig


def test_deviations_are_bounded_and_begin_in_the_middle():
    actions = gs.Box(-2, 2, (2,))
    config = NetworkConfig(layers=(8,))
    policy = squashed.SquashedPolicy(gs.Box(-1, 1, (3,)), actions, config, 0)
    begin = policy.distribution(tf.zeros([1, 3])).parameters["log_std"]
    np.testing.assert_allclose(begin, [[-1.5, -1.5]])
    far = 1e4 * tf.random.stateless_normal([50, 3], [0, 0])
    ends = policy.distribution(far).parameters["log_std"].numpy()
    assert ends.min() == -5
    assert ends.max() == 2
