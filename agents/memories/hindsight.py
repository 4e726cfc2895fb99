"""Replay memory that replaces goals by ones that were achieved later."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.memories import replay
from agents.tools import rows as rows_


class Hindsight(replay.Replay):
    """Replay memory with hindsight; Andrychowicz et al. (2017), strategy `future`.

    Observations are dicts with the keys `achieved_goal` and `desired_goal`. At every
    draw, a share of the transitions gets another goal in both of its observations: one
    that was achieved after it in its episode, at a step drawn uniformly. Reward and
    termination follow from the new goal.

    In addition to the entries of `Replay`, it stores the number of each entry's episode
    in its row, and the last entry of every episode.
    """

    topology = None

    def __init__(
        self,
        *arguments: Any,
        share: float,
        outcome: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    ) -> None:
        """Allocate like `Replay`, for single steps of observations without stacks.

        Args:
          *arguments: Arguments of `Replay`.
          share: Probability that a drawn transition gets another goal, in [0, 1].
          outcome: Function of achieved and desired goals `[B, ...]` that returns
            rewards float32 `[B]`, and whether the episode terminates, bool `[B]`.
        """
        super().__init__(*arguments)
        if self._stack or self._n_step > 1:
            raise ValueError("hindsight needs n_step 1 and observations without stack.")
        self._share, self._outcome = share, outcome
        zeros = tf.zeros([self._rows * self._length], tf.int64)
        self._episodes = tf.Variable(zeros, trainable=False)  # By slot of an entry.
        self._ends = tf.Variable(zeros, trainable=False)  # By slot of such a number.
        self._running = tf.Variable(tf.zeros([self._rows], tf.int64), trainable=False)
        self.num_bytes += 16 * zeros.shape[0]
        own = {"episodes": self._episodes, "ends": self._ends, "running": self._running}
        self.persistent = {**self.persistent, **own}

    def begin(self, rows: tf.Tensor) -> None:
        """Begin episodes in rows, int32 `[K]`, even if the last ones did not end."""
        cut = tf.gather(self._state, rows)[:, 1] > 0
        self._count(rows, cut)
        super().begin(rows)

    def append(
        self,
        rows: tf.Tensor,
        observation: Any,
        action: Any,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> tf.Tensor:
        """Store one step of rows, int32 `[K]`; see `Replay.append`."""
        head = tf.gather(self._state, rows)[:, 0]
        episode = tf.gather(self._running, rows)
        replay.assign([self._episodes], self._slots(rows, head), [episode])
        replay.assign([self._ends], self._slots(rows, episode), [head + 1])
        self._count(rows, terminated | truncated)
        facts = action, reward, terminated, truncated
        return super().append(rows, observation, *facts, next_observation)

    def sample(
        self, count: int, seed: tf.Tensor, beta: float | tf.Tensor = 0.4
    ) -> dict[str, Any]:
        """Draw transitions with replacement, a share of them with other goals.

        Arguments, results and errors are those of `Replay.sample`.
        """
        seeds = tf.random.split(seed, 3)
        items = super().sample(count, seeds[0], beta)
        chosen = tf.random.stateless_uniform([count], seeds[1]) < self._share
        goal = self._later_goal(items["index"], seeds[2])
        observation, following = items["observation"], items["next_observation"]
        reward, terminated = self._outcome(following["achieved_goal"], goal)
        discount = self._discounts[1] * (1 - tf.cast(terminated, tf.float32))
        new = {
            "observation": {**observation, "desired_goal": goal},
            "next_observation": {**following, "desired_goal": goal},
            "reward": reward,
            "discount": discount,
        }
        old = {name: items[name] for name in new}
        return {**items, **rows_.choose(chosen, new, old)}

    def _later_goal(self, index: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draw goals `[B, ...]` achieved after transitions, until the episode's end."""
        rows, entry = index % self._rows, index // self._rows
        episode = tf.gather(self._episodes, self._slots(rows, entry))
        end = tf.gather(self._ends, self._slots(rows, episode))
        steps = tf.random.stateless_uniform(
            tf.shape(entry), seed, maxval=tf.int64.max, dtype=tf.int64
        )
        later = entry + 1 + steps % (end - entry)
        return self._observation_of(rows, later)["achieved_goal"]

    def _count(self, rows: tf.Tensor, ended: tf.Tensor) -> None:
        """Count the ended episodes among those of rows `[K]`."""
        ended = tf.cast(ended, tf.int64)
        self._running.scatter_add(tf.IndexedSlices(ended, rows))
