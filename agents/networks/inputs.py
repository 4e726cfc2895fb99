"""What networks get: observations without the mask of actions, and the mask."""

from typing import Any

import gymnasium
import tensorflow as tf

from agents.tools import spaces


class Inputs:
    """Divides observations into what torsos see and which actions are allowed.

    Attributes:
      space: Space of what torsos see.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> None:
        """Find out whether there is a mask, see `spaces.mask_sizes`."""
        self._masked = spaces.mask_sizes(observation_space, action_space) is not None
        self.space = observation_space
        if self._masked:
            children = dict(observation_space.spaces)
            del children[spaces.ACTION_MASK]
            self.space = gymnasium.spaces.Dict(children)

    def split(self, observation: Any) -> tuple[Any, tf.Tensor | None]:
        """What torsos see, and allowed values, bool `[..., values]`, if masked."""
        if not self._masked:
            return observation, None
        rest = dict(observation)
        mask = tf.nest.flatten(rest.pop(spaces.ACTION_MASK))
        return rest, tf.concat([tf.cast(leaf, tf.bool) for leaf in mask], -1)


def zeros(space: gymnasium.Space) -> Any:
    """A batch of one observation, to build layers with."""
    return spaces.transform(
        lambda x: tf.zeros([1, *x.shape], x.dtype), spaces.spec(space)
    )
