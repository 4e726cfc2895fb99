"""Interaction of a batch of environments with an algorithm, in one op."""

from typing import Any

import tensorflow as tf

from agents.tools import algorithm as algorithm_
from agents.tools import conditional, in_graph_batch_env


def simulate(
    batch_env: in_graph_batch_env.InGraphBatchEnv,
    algorithm: algorithm_.Algorithm,
    steps: int | tf.Tensor,
    training: bool = True,
    reset: bool | tf.Tensor = False,
) -> dict[str, tf.Tensor]:
    """Run environments and algorithm together for a number of batch steps.

    Rows whose episode is over are reset at the beginning of the next step, so that
    the algorithm always sees the true last observation of an episode. Everything
    happens in one graph function, traced once for training and once for evaluation.

    Args:
      batch_env: Environments, `N` rows.
      algorithm: Told about all that happens.
      steps: Number of batch steps; every one is `N` environment steps.
      training: Let the algorithm explore and learn.
      reset: Discontinue running episodes first, so that all rows begin a new one.

    Returns:
      `done` bool, `score` float32 and `length` int32, each `[steps, N]`. Score (raw
      return) and length are those of the episode that ended there, else zero.

    Raises:
      What the environments raise, for example `EnvProcessError`.
    """
    steps, reset = tf.cast(steps, tf.int32), tf.convert_to_tensor(reset)
    try:
        return _simulate(batch_env, algorithm, steps, training, reset)
    except tf.errors.OpError as error:
        if batch_env.error is not None:
            raise batch_env.error from error
        raise


@tf.function(autograph=False)
def _simulate(
    batch_env: Any,
    algorithm: Any,
    steps: tf.Tensor,
    training: bool,
    reset: tf.Tensor,
) -> dict[str, tf.Tensor]:
    conditional.when(reset, batch_env.discontinue)
    arrays = [tf.TensorArray(x, steps) for x in (tf.bool, tf.float32, tf.int32)]

    def body(index, *arrays):
        finished = _step(batch_env, algorithm, training)
        written = [a.write(index, x) for a, x in zip(arrays, finished, strict=True)]
        return (index + 1, *written)

    _, *arrays = tf.while_loop(
        lambda index, *_: index < steps, body, (0, *arrays), parallel_iterations=1
    )
    names = ("done", "score", "length")
    return {name: a.stack() for name, a in zip(names, arrays, strict=True)}


def _step(batch_env, algorithm, training: bool) -> tuple[tf.Tensor, ...]:
    """One step of all rows; returns done, score and length where done, each `[N]`."""
    everyone = tf.range(len(batch_env))

    def begin(agent_indices):
        batch_env.reset(agent_indices)
        algorithm.begin_episodes(agent_indices)

    _for_rows(begin, batch_env.done)
    observation = tf.nest.map_structure(tf.convert_to_tensor, batch_env.observation)
    action = algorithm.perform(everyone, observation, training)
    batch_env.simulate(action)
    done = batch_env.done
    if training:
        algorithm.experience(
            everyone,
            observation,
            action,
            tf.convert_to_tensor(batch_env.reward),
            tf.convert_to_tensor(batch_env.terminated),
            tf.convert_to_tensor(batch_env.truncated),
            tf.nest.map_structure(tf.convert_to_tensor, batch_env.observation),
        )
        _for_rows(algorithm.end_episodes, done)
    score = tf.where(done, batch_env.score, 0.0)
    length = tf.where(done, batch_env.length, 0)
    return done, score, length


def _for_rows(function, selected: tf.Tensor) -> None:
    """Call a function with the indices of the selected rows, if there are any."""

    def call(selected):
        function(tf.cast(tf.where(selected)[:, 0], tf.int32))

    conditional.when(tf.reduce_any(selected), call, selected)
