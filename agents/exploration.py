"""Exploration of algorithms that learn off-policy: noise on actions or parameters.

`Algorithm.begin_episodes` calls `exploration.begin(rows)`, and `perform` calls
`exploration(rows, action, steps, generator)` where it is training. It is up to the
algorithm that evaluation does not explore: what is called here always explores.
"""

import contextlib
from collections.abc import Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf

from agents.tools import schedules

Rate = float | schedules.Schedule | Sequence[float]
"""Number, schedule, or one number for each row."""


class Exploration(tf.Module):
    """Replaces the actions that an algorithm thinks best.

    All randomness comes from the generator. What it remembers belongs to running
    episodes, so checkpoints hold nothing of it.
    """

    def begin(self, rows: tf.Tensor) -> None:
        """Forget the past of these rows, int32 `[K]`."""

    def __call__(
        self,
        rows: tf.Tensor,
        action: tf.Tensor,
        steps: tf.Tensor,
        generator: tf.random.Generator,
    ) -> tf.Tensor:
        """Actions to perform instead.

        Args:
          rows: Rows that act, int32 `[K]`.
          action: What they would do, `[K, ...]`.
          steps: `schedules.Time`, or environment steps so far, int64.
          generator: Source of randomness.
        """
        raise NotImplementedError


class Gaussian(Exploration):
    """Adds independent normal noise to actions `[K, size]` in [-1, 1], and clips them.

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
    """Adds noise with inertia to actions `[K, size]` in [-1, 1], and clips them.

    Each row has a process of its own, zero before its episode begins, that moves by
    `x += -theta x dt + std sqrt(dt) N(0, 1)` before every action. Over long episodes
    its variance is `std^2 / (theta (2 - theta dt))`, and steps that are k apart
    correlate by `(1 - theta dt)^k`.

    Uhlenbeck and Ornstein (1930), "On the Theory of the Brownian Motion"; Lillicrap et
    al. (2016), "Continuous Control with Deep Reinforcement Learning", where std is 0.2.
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
        """Let the processes of these rows, int32 `[K]`, begin at zero."""
        zeros = tf.zeros([tf.size(rows), self._state.shape[1]])
        self._state.scatter_nd_update(rows[:, None], zeros)

    def __call__(self, rows, action, steps, generator) -> tf.Tensor:
        noise = generator.normal([tf.size(rows), self._state.shape[1]])
        noise *= self._std(rows, steps) * self._scale
        state = self._kept * tf.gather(self._state, rows) + noise
        self._state.scatter_nd_update(rows[:, None], state)
        return tf.clip_by_value(action + state, -1.0, 1.0)


class EpsilonGreedy(Exploration):
    """Replaces the whole action of a row by a uniform one with probability epsilon.

    Actions count from zero: `[K, D]`, or `[K]` for one size. Dimensions are drawn
    independently of each other, but all or none of them.

    Mnih et al. (2015), "Human-Level Control through Deep Reinforcement Learning".
    """

    def __init__(self, sizes: Sequence[int], rows: int, epsilon: Rate) -> None:
        """Sizes are the numbers of values to choose from, see `spaces.choices`."""
        super().__init__()
        self._sizes = tuple(sizes)
        self._epsilon = _Rate("epsilon", epsilon, rows, maximum=1.0)

    def __call__(self, rows, action, steps, generator, mask=None) -> tf.Tensor:
        """As in `Exploration`; at least one value must be allowed per dimension.

        Args:
          rows: Rows that act, int32 `[K]`.
          action: What they would do, `[K]` or `[K, D]`.
          steps: `schedules.Time`, or environment steps so far, int64.
          generator: Source of randomness.
          mask: Which values are allowed, bool `[K, sum of sizes]`; by default all.
        """
        chance = generator.uniform([tf.size(rows), 1 + len(self._sizes)])
        explore = chance[:, :1] < self._epsilon(rows, steps)
        drawn = tf.cast(self._choose(chance[:, 1:], mask), action.dtype)
        chosen = tf.where(explore, drawn, tf.reshape(action, tf.shape(drawn)))
        return tf.reshape(chosen, tf.shape(action))

    def _choose(self, chance: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """Allowed values `[K, D]` from numbers `[K, D]`, uniform in [0, 1)."""
        if mask is None:
            return tf.cast(chance * tf.constant(self._sizes, tf.float32), tf.int64)
        columns = []
        for index, allowed in enumerate(tf.split(mask, self._sizes, 1)):
            ranks = tf.cumsum(tf.cast(allowed, tf.float32), 1)
            rank = tf.floor(chance[:, index, None] * ranks[:, -1:])
            columns.append(tf.reduce_sum(tf.cast(ranks <= rank, tf.int64), 1))
        return tf.stack(columns, 1)


def ladder(num_agents: int, base: float = 0.4, alpha: float = 7.0) -> np.ndarray:
    """Epsilons `base^(1 + alpha i / (N - 1))` of the agents i = 0 ... N - 1.

    A single agent is the first. Horgan et al. (2018), "Distributed Prioritized
    Experience Replay".
    """
    fraction = np.arange(num_agents) / max(num_agents - 1, 1)
    return base ** (1.0 + alpha * fraction)


class ParameterNoise(tf.Module):
    """A perturbed copy of variables to act with, the same for all rows.

        noise.redraw(generator)              # at least once before acting
        with noise.applied():                # perform, while training
            action = network(observation)
        noise.adapt(distance, target)        # of perturbed from plain actions

    The network must be built. Checkpoints hold `persistent`.

    Plappert et al. (2018), "Parameter Space Noise for Exploration".
    """

    def __init__(
        self, variables: Iterable[keras.Variable], std: float, factor: float = 1.01
    ) -> None:
        """Begin with standard deviation `std`, adapted by the factor."""
        super().__init__()
        if std <= 0 or factor <= 1:
            raise ValueError(
                f"std must be above 0 and factor above 1, got {std} and {factor}."
            )
        self._variables = list(variables)
        self._factor = factor
        self.std = tf.Variable(std, dtype=tf.float32, trainable=False)
        self._perturbed = [
            tf.Variable(tf.convert_to_tensor(x), trainable=False)
            for x in self._variables
        ]
        self.persistent = {"std": self.std, "perturbed": self._perturbed}

    def redraw(self, generator: tf.random.Generator) -> None:
        """Copy the variables and add new noise."""
        for variable, perturbed in zip(self._variables, self._perturbed, strict=True):
            noise = self.std * generator.normal(variable.shape)
            perturbed.assign(tf.convert_to_tensor(variable) + noise)

    def applied(self) -> contextlib.AbstractContextManager:
        """Context in which the variables have the values of the perturbed copy."""
        pairs = zip(self._variables, self._perturbed, strict=True)
        return keras.StatelessScope(list(pairs))

    def adapt(self, distance: tf.Tensor, target: float | tf.Tensor) -> None:
        """Less noise if the actions are farther away than the target, else more."""
        change = tf.where(distance > target, 1.0 / self._factor, self._factor)
        self.std.assign(self.std * change)


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
        """Values `[K, 1]`."""
        value = schedules.value(self._rate, steps)
        return tf.gather(tf.broadcast_to(value, [self._rows]), rows)[:, None]
