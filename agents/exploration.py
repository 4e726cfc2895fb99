"""Exploration in off-policy algorithms: noise on actions or parameters.

`Algorithm.begin_episodes` calls `exploration.begin(rows)`, and `explore` calls
`exploration(rows, action, steps, generator)`. The algorithm must ensure that evaluation
does not explore: the functions here always explore.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agents.tools import conditional, schedules

Rate = float | schedules.Schedule | Sequence[float]
"""Number, schedule, or one number for each row."""


class Exploration(tf.Module):
    """Base of functions that replace the best actions of an algorithm.

    All randomness comes from the generator. State of running episodes is not in
    checkpoints.

    Attributes:
      persistent: Variables for checkpoints.
    """

    persistent: dict[str, tf.Variable] = {}

    def begin(self, rows: tf.Tensor) -> None:
        """Reset the state of these rows, int32 `[K]`."""

    def __call__(
        self,
        rows: tf.Tensor,
        action: tf.Tensor,
        steps: tf.Tensor,
        generator: tf.random.Generator,
    ) -> tf.Tensor:
        """Return actions to perform instead.

        Args:
          rows: Rows that act, int32 `[K]`.
          action: Best actions, `[K, ...]`.
          steps: `schedules.Elapsed`, or environment steps so far, int64.
          generator: Source of randomness.
        """
        raise NotImplementedError


class Gaussian(Exploration):
    """Independent normal noise on actions `[K, size]` in [-1, 1], clipped.

    Fujimoto et al. (2018), "Addressing Function Approximation Error in Actor-Critic
    Methods", where the standard deviation is 0.1.
    """

    def __init__(self, size: int, rows: int, std: Rate) -> None:
        super().__init__()
        self._size = size
        self._std = _Rate("std", std, rows)

    def __call__(self, rows, action, steps, generator) -> tf.Tensor:
        noise = self._std(rows, steps) * generator.normal([tf.size(rows), self._size])
        return tf.clip_by_value(action + noise, -1.0, 1.0)


class OrnsteinUhlenbeck(Exploration):
    """Noise with inertia on actions `[K, size]` in [-1, 1], clipped.

    Each row has its own process, zero before its episode begins, which moves by `x +=
    -theta x dt + std sqrt(dt) N(0, 1)` before every action. Over long episodes its
    variance is `std^2 / (theta (2 - theta dt))`, and steps at a distance of k have
    correlation `(1 - theta dt)^k`.

    Uhlenbeck and Ornstein (1930), "On the Theory of the Brownian Motion"; Lillicrap et
    al. (2016), "Continuous Control with Deep Reinforcement Learning", where std is 0.2.

    Raises:
      ValueError: unless `dt` is positive and `theta * dt` in (0, 1].
    """

    def __init__(
        self, size: int, rows: int, std: Rate, theta: float = 0.15, dt: float = 1.0
    ) -> None:
        super().__init__()
        if not (dt > 0 and 0 < theta * dt <= 1):
            raise ValueError(
                f"theta * dt must be in (0, 1] and dt positive, got {theta} and {dt}."
            )
        self._std = _Rate("std", std, rows)
        self._kept, self._scale = 1.0 - theta * dt, dt**0.5
        self._state = tf.Variable(tf.zeros([rows, size]), trainable=False)

    def begin(self, rows: tf.Tensor) -> None:
        """Reset the processes of these rows, int32 `[K]`, to zero."""
        zeros = tf.zeros([tf.size(rows), self._state.shape[1]])
        self._state.scatter_update(tf.IndexedSlices(zeros, rows))

    def __call__(self, rows, action, steps, generator) -> tf.Tensor:
        noise = generator.normal([tf.size(rows), self._state.shape[1]])
        noise *= self._std(rows, steps) * self._scale
        state = self._kept * tf.gather(self._state, rows) + noise
        self._state.scatter_update(tf.IndexedSlices(state, rows))
        return tf.clip_by_value(action + state, -1.0, 1.0)


class EpsilonGreedy(Exploration):
    """Random actions with probability epsilon, which replace whole actions.

    Actions count from zero: `[K, D]`, or `[K]` for one size. Either all dimensions
    of a row are drawn, independently of each other, or none.

    Mnih et al. (2015), "Human-Level Control through Deep Reinforcement Learning".
    """

    def __init__(self, sizes: Sequence[int], rows: int, epsilon: Rate) -> None:
        """Create it for `sizes`, the numbers of choices, see `spaces.choices`."""
        super().__init__()
        self._sizes = tuple(sizes)
        self._epsilon = _Rate("epsilon", epsilon, rows, maximum=1.0)

    def __call__(self, rows, action, steps, generator, mask=None) -> tf.Tensor:
        """Return actions; at least one value must be allowed per dimension.

        Args:
          rows: Rows that act, int32 `[K]`.
          action: Best actions, `[K]` or `[K, D]`.
          steps: `schedules.Elapsed`, or environment steps so far, int64.
          generator: Source of randomness.
          mask: Allowed values, bool `[K, sum of sizes]`; all by default.
        """
        chance = generator.uniform([tf.size(rows), 1 + len(self._sizes)])
        explore = chance[:, :1] < self._epsilon(rows, steps)
        drawn = tf.cast(self._choose(chance[:, 1:], mask), action.dtype)
        chosen = tf.where(explore, drawn, tf.reshape(action, tf.shape(drawn)))
        return tf.reshape(chosen, tf.shape(action))

    def _choose(self, chance: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """Choose allowed values `[K, D]` by numbers `[K, D]`, uniform in [0, 1)."""
        if mask is None:
            return tf.cast(chance * tf.constant(self._sizes, tf.float32), tf.int64)
        columns = []
        for index, allowed in enumerate(tf.split(mask, self._sizes, 1)):
            ranks = tf.cumsum(tf.cast(allowed, tf.float32), 1)
            rank = tf.floor(chance[:, index, None] * ranks[:, -1:])
            columns.append(tf.reduce_sum(tf.cast(ranks <= rank, tf.int64), 1))
        return tf.stack(columns, 1)


def ladder(num_agents: int, base: float = 0.4, alpha: float = 7.0) -> np.ndarray:
    """Compute epsilons `base^(1 + alpha i / (N - 1))` of agents i = 0 ... N - 1.

    A single agent gets the first epsilon. Horgan et al. (2018), "Distributed
    Prioritized Experience Replay".
    """
    fraction = np.arange(num_agents) / max(num_agents - 1, 1)
    return base ** (1.0 + alpha * fraction)


class ParameterNoise(Exploration):
    """Actions by a network with noise on its parameters, separate for each row.

    A row draws standard normal noise when its episode begins and keeps it until the
    next one. What multiplies it, common to all rows, adapts at every step: it falls by
    the factor if the root mean square distance to actions without noise exceeds `std`,
    and otherwise rises.

    Plappert et al. (2018), "Parameter Space Noise for Exploration", section 3.

    Attributes:
      deviation: Standard deviation of the noise on parameters.
    """

    def __init__(
        self,
        network: Callable[[Any], tf.Tensor],
        variables: Iterable[keras.Variable],
        rows: int,
        std: Rate,
        factor: float = 1.01,
    ) -> None:
        """Start with a standard deviation of the parameters of 0.1.

        Args:
          network: Function from observations `[K, ...]` to actions `[K, size]`, built.
          variables: Parameters of the network that get noise.
          rows: Number of rows.
          std: Target of the deviation of actions.
          factor: Factor by which the deviation of parameters changes.

        Raises:
          ValueError: unless the factor is above one.
        """
        super().__init__()
        if factor <= 1:
            raise ValueError(f"factor must be above 1, got {factor}.")
        self._network, self._variables = network, list(variables)
        self._std, self._factor = _Rate("std", std, rows), factor
        self._noise = [
            tf.Variable(tf.zeros([rows, *x.shape]), trainable=False)
            for x in self._variables
        ]
        self._new = tf.Variable(tf.ones([rows], tf.bool), trainable=False)
        self.deviation = tf.Variable(0.1, trainable=False)
        self.persistent = {"deviation": self.deviation}

    def begin(self, rows: tf.Tensor) -> None:
        """Let these rows, int32 `[K]`, draw noise before they act again."""
        self._new.scatter_update(tf.IndexedSlices(tf.ones_like(rows, tf.bool), rows))

    def __call__(self, rows, action, steps, generator, observation) -> tf.Tensor:
        """Return noisy actions for observations `[K, ...]`; see `Exploration`."""

        def draw(rows):
            for variable in self._noise:
                shape = tf.concat([[tf.size(rows)], variable.shape[1:]], 0)
                noise = tf.IndexedSlices(generator.normal(shape), rows)
                variable.scatter_update(noise)
            self._new.scatter_update(
                tf.IndexedSlices(tf.zeros_like(rows, tf.bool), rows)
            )

        conditional.for_rows(draw, rows, tf.gather(self._new, rows))
        noise = [self.deviation * tf.gather(x, rows) for x in self._noise]
        inputs = observation, noise
        if rows.shape[0] is None:  # A batch that may be one is mapped wrongly.
            inputs = tf.nest.map_structure(lambda x: tf.concat([x, x[:1]], 0), inputs)
        noisy = tf.vectorized_map(self._act, inputs)[: tf.size(rows)]
        distance = tf.sqrt(tf.reduce_mean((noisy - action) ** 2))
        far = distance > tf.reduce_mean(self._std(rows, steps))
        change = tf.where(far, 1.0 / self._factor, self._factor)
        self.deviation.assign(self.deviation * change)
        return noisy

    def _act(self, inputs: tuple[Any, list[tf.Tensor]]) -> tf.Tensor:
        """Compute the action `[size]` of one row."""
        observation, noise = inputs
        observation = tf.nest.map_structure(lambda x: x[None], observation)
        parameters = zip(self._variables, noise, strict=True)
        noisy = [(x, tf.convert_to_tensor(x) + y) for x, y in parameters]
        with keras.StatelessScope(noisy):
            return self._network(observation)[0]


class _Rate:
    """Nonnegative value that may depend on environment steps or on the row."""

    def __init__(
        self, name: str, rate: Rate, rows: int, maximum: float = np.inf
    ) -> None:
        self._rate = rate
        self._rows = rows
        if isinstance(rate, schedules.Schedule):
            values = np.array(schedules.ends(rate))
        else:
            self._rate = values = np.asarray(rate, np.float32)
            if values.shape not in ((), (rows,)):
                raise ValueError(
                    f"{name} must be one number, or one for each of {rows} rows, "
                    f"got shape {values.shape}."
                )
        if not np.all((values >= 0) & (values <= maximum)):
            raise ValueError(f"{name} must be from 0 to {maximum}, got {rate}.")

    def __call__(self, rows: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """Return values `[K, 1]`."""
        value = schedules.value(self._rate, steps)
        return tf.gather(tf.broadcast_to(value, [self._rows]), rows)[:, None]
