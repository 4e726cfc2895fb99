"""Algorithm for tests, which acts without learning and records its calls."""

import copy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.tools import algorithm, spaces


class RecordedCall(NamedTuple):
    """One call of an algorithm's function.

    Attributes:
      name: `begin_episodes`, `perform`, `experience` or `end_episodes`.
      agent_indices: Rows, a list of integers.
      arrays: Other arguments by name, structures of arrays `[K, ...]`.
      training: Argument of `begin_episodes` and `perform`, else None.
    """

    name: str
    agent_indices: list[int]
    arrays: dict[str, Any]
    training: bool | None = None


class MockAlgorithm(algorithm.Algorithm):
    """Algorithm with random or constant actions that records every call in order.

    It works in graphs and eagerly. Arrays are copies, so later events never change
    them.

    Attributes:
      calls: List of `RecordedCall`; clear it between the parts of a test.
    """

    def __init__(
        self, action_space: gymnasium.Space, action: Any = None, seed: int = 0
    ) -> None:
        """Take random actions of the space, or one constant action."""
        super().__init__()
        self._space, self._action = copy.deepcopy(action_space), action
        self._space.seed(seed)
        self._specs = spaces.spec(action_space)
        self._recorded = []
        # Input of recording operations, so that the graph keeps their order.
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)

    @property
    def calls(self) -> list[RecordedCall]:
        """Calls since the last `clear`, in the order of the program."""
        return [call for _, call in sorted(self._recorded, key=lambda pair: pair[0])]

    def clear(self) -> None:
        """Forget all calls."""
        self._recorded.clear()

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Record the rows."""
        self._record("begin_episodes", agent_indices, {}, training)

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Record the observation and return actions, random even in evaluation."""
        arrays = {"observation": observation}
        self._record("perform", agent_indices, arrays, training)
        return self._draw(tf.size(agent_indices))

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Return actions as `perform` does, but record nothing."""
        return self._draw(tf.shape(tf.nest.flatten(observation)[0])[0]), state

    def experience(
        self,
        agent_indices: tf.Tensor,
        observation: Any,
        action: Any,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> None:
        """Record the transitions."""
        arrays = {
            "observation": observation,
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "next_observation": next_observation,
        }
        self._record("experience", agent_indices, arrays)

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Record the rows."""
        self._record("end_episodes", agent_indices, {})

    def persistent(self) -> dict[str, Any]:
        """Return the number of calls so far."""
        return {"count": self._count}

    def _record(
        self,
        name: str,
        agent_indices: tf.Tensor,
        arrays: dict[str, Any],
        training: bool | None = None,
    ) -> None:
        """Append a call when the graph executes it."""

        def append(count, rows, *leaves):
            leaves = [np.array(leaf) for leaf in leaves]
            named = tf.nest.pack_sequence_as(arrays, leaves)
            call = RecordedCall(name, rows.tolist(), named, training)
            self._recorded.append((int(count), call))

        leaves = tf.nest.flatten(arrays)
        count = tf.convert_to_tensor(self._count.assign_add(1))
        tf.numpy_function(append, [count, agent_indices, *leaves], [])

    def _draw(self, size: tf.Tensor) -> Any:
        """Return actions `[size, ...]` in the graph."""
        specs = spaces.flatten(self._specs)
        leaves = tf.numpy_function(self._act, [size], [x.dtype for x in specs])
        leaves = tf.nest.flatten(leaves)  # One leaf is not a list eagerly.
        leaves = [
            tf.ensure_shape(leaf, [None, *spec.shape])
            for leaf, spec in zip(leaves, specs, strict=True)
        ]
        return spaces.unflatten(self._specs, leaves)

    def _act(self, size: int) -> list[np.ndarray]:
        """Return leaves of actions `[size, ...]`."""
        actions = [
            self._space.sample() if self._action is None else self._action
            for _ in range(size)
        ]
        columns = zip(*(spaces.flatten(action) for action in actions), strict=True)
        dtypes = [spec.dtype for spec in spaces.flatten(self._specs)]
        return [
            np.stack([np.asarray(x, dtype) for x in column])
            for column, dtype in zip(columns, dtypes, strict=True)
        ]
