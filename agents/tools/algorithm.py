"""What an agent does between environment steps: the seam between acting and learning."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.tools import metrics, rows


class Algorithm(tf.Module):
    """A learner that is told about a batch of episodes as they happen.

    Episodes begin and end at different times, so every call names its rows
    (`agent_indices`, int32 `[K]`). The caller, usually `tools.simulate`, does this:

        algorithm.begin_episodes(done_rows, training)    # these were just reset
        action = algorithm.perform(                      # before every step
            rows, observation, training)
        algorithm.experience(                            # after every step
            rows, observation, action, reward,
            terminated, truncated, next_observation)
        algorithm.end_episodes(done_rows)                # these just finished

    `terminated` means that there is no future; `truncated` that the future was cut
    off, so values bootstrap from `next_observation`, the true last observation of the
    episode. State of rows that are not named must not change. Outside of training
    only `begin_episodes` and `perform` are called, and learn nothing.

    Attributes:
      metrics: `Metrics` updated while training; reported and reset by the loop.
      batch_steps: Training phases last a multiple of this many batch steps, so that
        no data is left over.
      stochastic: Whether the policy has probabilities, by which `decide` can sample.
      paused: None, or a function that tells after every step whether `simulate` is to
        return before its time; see `train`. Not asked where halves take turns.
    """

    batch_steps = 1
    stochastic = False
    paused: Callable[[], tf.Tensor] | None = None

    def __init__(self, metric_names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.metrics = metrics.Metrics(metric_names)

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Forget the past of these rows.

        Args:
          agent_indices: Rows whose episodes begin, int32 `[K]`.
          training: Whether `perform` will train in these episodes; otherwise change
            nothing that training depends on.
        """

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Choose actions `[K, ...]` of the environment's action space.

        Args:
          agent_indices: Rows that act, int32 `[K]`.
          observation: Structure of tensors `[K, ...]`, one row per agent.
          training: Explore; otherwise act deterministically.
        """
        raise NotImplementedError(
            "it must be defined, as perform(self, agent_indices, observation, training)."
        )

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
        """Learn of one real transition per row; all arguments are `[K, ...]`."""

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Learn that these rows are over; a good moment to train."""

    def decide(
        self,
        observation: Any,
        state: Any,
        generator: tf.random.Generator | None = None,
    ) -> tuple[Any, Any]:
        """Actions for observations `[K, ...]`, and the next state; changes nothing.

        Args:
          observation: Structure of tensors `[K, ...]`.
          state: What the policy remembers of each episode, as from `initial_state`.
          generator: Samples actions from the policy; without, they are the best ones.

        Raises:
          ValueError: for a generator where the policy is not `stochastic`.
        """
        if generator is not None:
            self.require_stochastic()
        everyone = tf.range(tf.shape(tf.nest.flatten(observation)[0])[0])
        return self.perform(everyone, observation, training=False), state

    def require_stochastic(self) -> None:
        """Raise ValueError unless `decide` can sample; noise of exploration is none."""
        if not self.stochastic:
            raise ValueError(
                f"{type(self).__name__} has no probabilities to sample actions by; take "
                "the best ones."
            )

    def initial_state(self, size: int | tf.Tensor) -> Any:
        """State of the policy at the beginning of `size` episodes, `[size, ...]`."""
        return ()

    def running_state(self, agent_indices: tf.Tensor) -> Any:
        """State of the policy in running episodes of these rows, `[K, ...]`."""
        return ()

    def imitation(self, items: dict[str, Any]) -> tuple[tf.Tensor, list]:
        """How unlike recorded actions the policy is, and the variables to change that.

        Args:
          items: `observation`, `action` of the environment, and `first` (steps that
            begin an episode, or what is known of one), structures of `[B, T, ...]`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no policy that could imitate actions."
        )

    def train(self) -> None:
        """Learn from what is remembered; the functions above call it when it is due.

        Where acting and training are divided, this is the seam: an instance that only
        acts gets a `train` that does nothing, so that what it remembers stays there
        until it is taken.
        """

    def learn_from_memory(self) -> None:
        """One update on what is remembered, though none is due; not in a graph.

        Raises:
          ValueError: if not enough is remembered.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot learn when it is told to."
        )

    def learn_from(self, fragments: dict[str, Any], mask: tf.Tensor) -> None:
        """One update on pieces of episodes that anyone collected.

        Args:
          fragments: Structures of `[F, T, ...]`: `observation`, `action` of the
            environment, `reward`, `terminated`, `truncated`, `next_observation`.
            Episodes may end within; every fragment is cut off behind its last step.
          mask: Steps that there are, bool `[F, T]`, the first ones of every fragment.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot learn from the data of others."
        )

    def acting(self) -> list[tf.Variable]:
        """What acting depends on and training changes, in a fixed order."""
        return []

    def persistent(self) -> dict[str, Any]:
        """What a checkpoint holds: trackables by name, nothing of running episodes.

        Values are objects that `tf.train.Checkpoint` takes, Keras layers, or mappings,
        lists and tuples of them. Only training needs what is under the name `memory`,
        so evaluation does not read it.
        """
        return {}


class Sampling(Algorithm):
    """Acts outside of training by actions that the policy of an algorithm samples.

        simulate(batch_env, Sampling(algorithm, len(batch_env), generator), steps, False)

    Nothing of the algorithm changes, neither what it learns nor its running episodes.
    """

    def __init__(
        self, algorithm: Algorithm, size: int, generator: tf.random.Generator
    ) -> None:
        """Act for so many rows; the generator is none that a checkpoint holds.

        Raises:
          ValueError: if the policy is not `stochastic`.
        """
        super().__init__()
        algorithm.require_stochastic()
        self._policy, self._generator = algorithm, generator
        self._state = rows.variables(algorithm.initial_state(size))

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Forget the past of these rows."""
        initial = self._policy.initial_state(tf.size(agent_indices))
        rows.write(self._state, agent_indices, initial)

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Sampled actions."""
        state = rows.gather(self._state, agent_indices)
        action, state = self._policy.decide(observation, state, self._generator)
        rows.write(self._state, agent_indices, state)
        return action
