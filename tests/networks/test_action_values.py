"""Values of all actions: what is advised for actions without a list of them."""

import numpy as np
import pytest
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
