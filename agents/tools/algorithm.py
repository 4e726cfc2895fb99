"""The seam between acting and learning: calls of an agent around environment steps."""

from typing import Any

import tensorflow as tf

from agents.tools import conditional, metrics


class Policy(tf.Module):
    """Part of an algorithm that acts and does not learn, for evaluation and export.

    Attributes:
      stochastic: Whether `decide` can sample from a distribution of actions.
    """

    stochastic = False

    def initial_state(self, size: int | tf.Tensor) -> Any:
        """Return the state at the beginning of `size` episodes, `[size, ...]`."""
        return ()

    def decide(
        self, observation: Any, state: Any, generator: tf.random.Generator | None = None
    ) -> tuple[Any, Any]:
        """Choose actions for observations `[K, ...]`; change no variable.

        Args:
          observation: Structure of tensors `[K, ...]`.
          state: State of each episode, at first from `initial_state`, `[K, ...]`.
          generator: Source of randomness to sample actions; none for the best actions.

        Raises:
          ValueError: if a generator is given, but the policy is not `stochastic`.
        """
        raise NotImplementedError

    def require_stochastic(self) -> None:
        """Raise ValueError unless `decide` can sample; exploration is not enough."""
        if not self.stochastic:
            raise ValueError(
                f"{type(self).__name__} has no probabilities to sample actions by; take "
                "the best ones."
            )


class Algorithm(Policy):
    """Policy that learns from a batch of running episodes.

    Episodes begin and end at different times, so every call names its rows
    (`agent_indices`, int32 `[K]`). The caller, usually `tools.simulate`, does this:

        algorithm.begin_episodes(done_rows, training)    # these were just reset
        action = algorithm.perform(                      # before every step
            rows, observation, training)
        algorithm.experience(                            # after every step
            rows, observation, action, reward,
            terminated, truncated, next_observation)
        algorithm.end_episodes(done_rows)                # these just finished

    `terminated` means that there is no future; `truncated` that the future was cut off,
    so values bootstrap from `next_observation`, the true last observation of the
    episode. Calls must not change the state of other rows. Outside of training, only
    `begin_episodes` and `perform` are called, and they learn nothing.

    A subclass defines `perform`, or `decide` and `explore`, which `perform` calls.

    Attributes:
      metrics: `Metrics` of training; the loop reports and resets them.
      batch_steps: Divisor of the length of training phases, in batch steps, so that no
        data is left over.
      learning: Whether this instance trains. An instance that only acts keeps its
        transitions until they are collected, to train another one.
    """

    batch_steps = 1
    learning = True

    def __init__(self, metric_names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.metrics = metrics.Metrics(metric_names)

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Reset the state of these rows.

        Args:
          agent_indices: Rows whose episodes begin, int32 `[K]`.
          training: Whether these episodes are for training; otherwise change nothing
            that training depends on.
        """

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Choose actions `[K, ...]` of the environment's action space.

        Args:
          agent_indices: Rows that act, int32 `[K]`.
          observation: Structure of tensors `[K, ...]`, one row per agent.
          training: Whether to explore, rather than take the best actions.
        """
        if training:
            return self.explore(agent_indices, observation)
        state = self.running_state(agent_indices)
        action, state = self.decide(observation, state)
        self.go_on(agent_indices, state)
        return action

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
        """Observe one transition per row; all arguments are `[K, ...]`."""

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Observe the end of these rows' episodes; a good moment to train."""

    def persistent(self) -> dict[str, Any]:
        """Return the trackables of a checkpoint by name, without running episodes.

        Values are objects that `tf.train.Checkpoint` takes, Keras layers, or mappings,
        lists and tuples of them. The name `memory` is for values that only training
        needs, so evaluation does not read them.
        """
        return {}

    def explore(self, agent_indices: tf.Tensor, observation: Any) -> Any:
        """Return actions `[K, ...]` for training; `experience` gets their outcome."""
        raise NotImplementedError(
            "it must be defined, as perform(self, agent_indices, observation, training)."
        )

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Return actions by `perform` or `explore`, which need no state here."""
        if generator is not None:
            self.require_stochastic()
        ones = tf.ones(tf.shape(tf.nest.flatten(observation)[0])[:1], tf.int32)
        everyone = tf.cumsum(ones, exclusive=True, name="everyone")  # `calls` asks.
        if type(self).perform is Algorithm.perform:
            return self.explore(everyone, observation), state
        return self.perform(everyone, observation, training=False), state

    def running_state(self, agent_indices: tf.Tensor) -> Any:
        """Return the policy's state in running episodes of these rows, `[K, ...]`."""
        return ()

    def go_on(self, agent_indices: tf.Tensor, state: Any) -> None:
        """Continue running episodes of these rows with a state, `[K, ...]`."""

    def report(
        self, values: dict[str, tf.Tensor], weight: float | tf.Tensor = 1.0
    ) -> None:
        """Add scalars of an update to the means `metrics`.

        Raises:
          InvalidArgumentError: if one is not finite; the message names it.
        """
        values = {name: tf.cast(value, tf.float64) for name, value in values.items()}
        for name, value in values.items():
            tf.debugging.assert_all_finite(
                value, f"{type(self).__name__}'s {name} is not finite."
            )
        self.metrics.update(values, weight)

    def train(self) -> None:
        """Train on the remembered data."""

    def train_when(self, due: tf.Tensor) -> None:
        """Train if the scalar bool `due` is true, unless this instance only acts."""
        if self.learning:
            conditional.when(due, self.train)

    def acting(self) -> list[tf.Variable]:
        """Return the variables that acting reads and training changes, in order."""
        return []
