"""Values of all actions: what is advised for actions without a list of them."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents.networks import action_values
from agents.networks import config as config_
from agents.tools import spaces


@pytest.mark.parametrize(
    ("space", "advice"),
    [
        (gs.Box(-1, 1, (2,)), "sac or td3 for a floating point Box with finite bounds"),
        (gs.Box(-1, np.inf, (2,)), "else a policy gradient such as ppo"),
        (gs.MultiBinary(3), "else a policy gradient such as ppo"),
        (gs.Text(3), "is not supported; use Box"),  # By no algorithm.
    ],
)
def test_algorithms_are_advised_for_the_spaces_that_they_take(space, advice):
    config = config_.NetworkConfig()
    with pytest.raises(spaces.UnsupportedSpaceError, match=advice):
        action_values.ActionValues(gs.Box(-1, 1, (3,)), space, config, seed=0)


def test_advantages_of_each_branch_have_mean_zero():
    """So the mean of the values of each branch is the value of the state."""
    config = config_.NetworkConfig(layers=(8,))
    values = action_values.ActionValues(
        gs.Box(-1, 1, (3,)), gs.MultiDiscrete([2, 3]), config, seed=0, dueling=True
    )(tf.random.stateless_normal([4, 3], [0, 0]))[..., 0].numpy()
    left, right = values[:, :2], values[:, 2:]
    np.testing.assert_allclose(left.mean(1), right.mean(1), atol=1e-6)
    assert np.abs(left.mean(1)).max() > 0.01
    assert (left.std(1) > 0.01).any()


def test_seed_decides_the_weights_of_noisy_layers():
    config = config_.NetworkConfig(layers=())
    first, again, other = (
        action_values.ActionValues(
            gs.Box(-1, 1, (3,)), gs.Discrete(4), config, seed, noisy_std=0.5
        )(tf.ones([1, 3])).numpy()
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.isclose(first, other).any()
