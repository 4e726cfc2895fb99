"""A batch of environments lifted into the TensorFlow graph."""

from typing import Any

import numpy as np
import tensorflow as tf

from agents.tools import spaces


class InGraphBatchEnv(tf.Module):
    """Steps and resets a `BatchEnv` from inside the graph.

    The current step of every environment is held in variables, so that it survives
    between calls of `simulate`. None of them belongs into a checkpoint.

    Attributes:
      observation: Structure of variables `[N, ...]`; where done, the true last one.
      reward: float32 `[N]`, raw.
      terminated, truncated: bool `[N]`; everything is done before the first reset.
      score: float32 `[N]`, sum of the raw rewards of the running episode.
      length: int32 `[N]`, steps of the running episode.
      error: The exception that the batch environment raised last, or None.
      steps: Number of batch steps begun so far, also while the graph runs.
    """

    def __init__(self, batch_env: Any) -> None:
        super().__init__()
        self._batch_env = batch_env
        self._specs = spaces.spec(batch_env.observation_space)
        self._action_specs = spaces.spec(batch_env.action_space)
        size = len(batch_env)
        self.observation = spaces.transform(
            lambda spec: _variable(tf.zeros([size, *spec.shape], spec.dtype)),
            self._specs,
        )
        self.reward = _variable(tf.zeros([size]))
        self.terminated = _variable(tf.ones([size], tf.bool))
        self.truncated = _variable(tf.zeros([size], tf.bool))
        self.score = _variable(tf.zeros([size]))
        self.length = _variable(tf.zeros([size], tf.int32))
        self._seeds = _variable(-tf.ones([size], tf.int64))
        self.error = None
        self.steps = 0

    def __len__(self) -> int:
        return len(self._batch_env)

    @property
    def observation_space(self):
        """Space of one environment."""
        return self._batch_env.observation_space

    @property
    def action_space(self):
        """Space of one environment."""
        return self._batch_env.action_space

    @property
    def done(self) -> tf.Tensor:
        """Rows whose episode is over, bool `[N]`."""
        return tf.logical_or(self.terminated, self.truncated)

    def discontinue(self, seeds: tf.Tensor | None = None) -> None:
        """Mark all episodes as over; their next reset uses the seeds, int64 `[N]`."""
        self.terminated.assign(tf.ones_like(self.terminated))
        if seeds is not None:
            self._seeds.assign(seeds)

    def simulate(self, action: Any) -> None:
        """Step all environments with actions `[N, ...]` of the action space."""
        leaves = tf.nest.flatten(action)
        specs = spaces.flatten(self._specs)
        outputs = tf.numpy_function(
            self._step,
            [self.done, *leaves],  # Depends on the flags, so on earlier resets.
            [spec.dtype for spec in specs] + [tf.float32, tf.bool, tf.bool],
        )
        *observation, reward, terminated, truncated = outputs
        for variable, leaf in zip(
            tf.nest.flatten(self.observation), observation, strict=True
        ):
            variable.assign(tf.ensure_shape(leaf, variable.shape))
        size = [len(self)]
        reward = tf.ensure_shape(reward, size)
        self.reward.assign(reward)
        self.terminated.assign(tf.ensure_shape(terminated, size))
        self.truncated.assign(tf.ensure_shape(truncated, size))
        self.score.assign_add(reward)
        self.length.assign_add(tf.ones(size, tf.int32))

    def reset(self, agent_indices: tf.Tensor) -> None:
        """Begin new episodes in these rows, int32 `[K]`."""
        specs = spaces.flatten(self._specs)
        observation = tf.numpy_function(
            self._reset,
            [agent_indices, tf.gather(self._seeds, agent_indices)],
            [spec.dtype for spec in specs],
        )
        observation = tf.nest.flatten(observation)  # A single leaf is no list eagerly.
        for variable, leaf, spec in zip(
            tf.nest.flatten(self.observation), observation, specs, strict=True
        ):
            leaf = tf.ensure_shape(leaf, [None, *spec.shape])
            _write(variable, agent_indices, leaf)
        for variable, value in (
            (self._seeds, -1),
            (self.reward, 0),
            (self.terminated, False),
            (self.truncated, False),
            (self.score, 0),
            (self.length, 0),
        ):
            fill = tf.fill(tf.shape(agent_indices), tf.cast(value, variable.dtype))
            _write(variable, agent_indices, fill)

    def close(self) -> None:
        """Close the batch environment and its processes."""
        self._batch_env.close()

    def _step(self, _, *leaves: np.ndarray) -> tuple[np.ndarray, ...]:
        action = spaces.unflatten(self._action_specs, list(leaves))
        self.steps += 1
        with self._remember_error():
            observation, reward, terminated, truncated, _ = self._batch_env.step(action)
        return (*spaces.flatten(observation), reward, terminated, truncated)

    def _reset(self, indices: np.ndarray, seeds: np.ndarray) -> list[np.ndarray]:
        seeds = None if (seeds < 0).all() else seeds
        with self._remember_error():
            return spaces.flatten(self._batch_env.reset(indices, seeds))

    def _remember_error(self) -> "_RememberError":
        return _RememberError(self)


class _RememberError:
    """Keeps the exception, which TensorFlow turns into text, for `simulate`."""

    def __init__(self, owner: InGraphBatchEnv) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        self._owner.error = None

    def __exit__(self, kind, error, traceback) -> None:
        self._owner.error = error


def _variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _write(variable: tf.Variable, rows: tf.Tensor, value: tf.Tensor) -> None:
    """Replace some rows of a variable."""
    variable.scatter_nd_update(rows[:, None], value)
