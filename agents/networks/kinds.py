"""Kinds of heads, and the choice of one for an action space."""

from typing import Any

import gymnasium
import numpy as np

from agents.networks.config import NetworkConfig
from agents.tools import config as config_
from agents.tools import spaces

HEADS = {
    "bernoulli": "agents.networks.heads:BernoulliHead",
    "beta": "agents.networks.heads:BetaHead",
    "categorical": "agents.networks.heads:CategoricalHead",
    "joint": "agents.networks.heads:JointHead",
    "multi_categorical": "agents.networks.heads:MultiCategoricalHead",
    "normal": "agents.networks.heads:NormalHead",
    "tanh_normal": "agents.networks.heads:TanhNormalHead",
}
"""Import paths of heads by the kind of their distribution."""
MAX_VALUES = 1000
"""Largest number of values of one component of an integer box as an action."""


def head(space: gymnasium.Space, config: NetworkConfig, seed: int) -> Any:
    """Create the head for an action space.

    A head is a Keras layer from features `[B..., F]` to parameters of a distribution,
    with these methods and attributes:

        distribution(parameters)    # see `distributions`: sample, mode, log_prob, ...
        action(sample)              # of the space `[B, *shape]` for samples `[B, ...]`
        sample_of(action)           # the reverse
        parameter_specs, sample_spec     # structures of `tf.TensorSpec` of one row

    Raises:
      UnsupportedSpaceError: if no head fits the space.
    """
    check_action_space(space)
    return config_.imported(HEADS[_kind(space, config)])(space, config, seed)


def _kind(space: gymnasium.Space, config: NetworkConfig) -> str:
    """Return the kind of distribution for an action space."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        return "joint"
    if isinstance(space, gymnasium.spaces.Discrete):
        return "categorical"
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return "bernoulli"
    floating = np.issubdtype(space.dtype, np.floating)
    return config.continuous if floating else "multi_categorical"


def check_action_space(space: gymnasium.Space) -> None:
    """Raise UnsupportedSpaceError unless there is a head for this space."""
    for leaf in spaces.flatten(space):
        spaces.spec(leaf)
        integers = isinstance(leaf, gymnasium.spaces.Box) and leaf.dtype.kind in "iub"
        if integers and spaces.integer_range(leaf)[1].max(initial=0) > MAX_VALUES:
            raise spaces.UnsupportedSpaceError(
                f"Action space {leaf} has too many values to choose from, at most "
                f"{MAX_VALUES} are supported; use a floating point Box."
            )
    if not spaces.flatten(space):
        raise spaces.UnsupportedSpaceError(f"Action space {space} is empty.")
