"""Interface of environments that can be compiled."""

import abc
from typing import Any

import gymnasium
import tensorflow as tf


class FunctionalEnv(abc.ABC):
    """Environment in the form of five pure functions on batches of states.

    The functions are those of Gymnasium's `FuncEnv`, but every tensor has a leading
    dimension of N environments. State is any structure of tensors `[N, ...]`. Random
    numbers come from `tf.random.stateless_*` and a seed, int32 `[2]`. The functions
    must consist of TensorFlow operations that XLA compiles: no Python side effects, no
    `tf.numpy_function`, no variables.

    An optional method `render(state)` returns pictures of states, uint8 tensor or array
    `[N, height, width, 3]`, from which `agents visualize` makes videos. It is called
    outside of the program, so it may use any Python. Small pictures are enlarged.

    Attributes:
      observation_space, action_space: Spaces of one environment.
      max_length: Steps after which to truncate episodes.
      render_fps: Steps per second in videos.
    """

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    max_length: int
    render_fps: float = 30

    @abc.abstractmethod
    def initial(self, size: int, seed: tf.Tensor) -> Any:
        """Return states at the beginning of `size` episodes."""

    @abc.abstractmethod
    def transition(self, state: Any, action: Any, seed: tf.Tensor) -> Any:
        """Return states after the actions `[N, ...]`."""

    @abc.abstractmethod
    def observation(self, state: Any) -> Any:
        """Return observations `[N, ...]`, with the dtypes of `spaces.spec`."""

    @abc.abstractmethod
    def reward(self, state: Any, action: Any, next_state: Any) -> tf.Tensor:
        """Return rewards of transitions, float32 `[N]`."""

    @abc.abstractmethod
    def terminal(self, state: Any) -> tf.Tensor:
        """Return whether the episodes have ended, bool `[N]`."""
