"""Interaction of a batch of environments with an algorithm, in one op."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.tools import algorithm as algorithm_
from agents.tools import calls, checks, conditional, in_graph_batch_env


def simulate(
    batch_env: in_graph_batch_env.InGraphBatchEnv,
    algorithm: algorithm_.Algorithm,
    steps: int | tf.Tensor,
    training: bool = True,
    reset: bool | tf.Tensor = False,
) -> dict[str, tf.Tensor]:
    """Run environments and algorithm together for a number of batch steps.

    The algorithm always sees the true last observation of an episode. Everything
    happens in one graph function, traced once for training and once for evaluation.

    Where the environments are in two parts, their steps alternate: one part steps while
    the algorithm chooses actions for the other one and learns of it. So the algorithm
    is called twice per batch step, for half of the rows each time, and an update after
    the last row of a batch step finds the first half one step ahead.

    Args:
      batch_env: Environments, `N` rows.
      algorithm: Told about all that happens.
      steps: Number of batch steps; every one is `N` environment steps.
      training: Let the algorithm explore and learn.
      reset: Discontinue running episodes first, so that all rows begin a new one. It
        is done in any case where `training` is not what it was in the call before, so
        that every episode is one or the other.

    Returns:
      `done` bool, `score` float32 and `length` int32, each `[steps, N]`. Score (raw
      return) and length are those of the episode that ended there, else zero. Zeros
      follow where the algorithm paused; `batch_env.steps` counts what was done.

    Raises:
      AlgorithmError: for a mistake in the class of the algorithm.
      What the environments raise, for example `EnvProcessError`.
      FloatingPointError: if losses of a compiled run are not finite.
    """
    steps = int(steps)
    if batch_env.training not in (None, training):
        reset = True
    batch_env.training = training
    if not steps:
        if reset:
            batch_env.discontinue()
        return _result(tf.zeros([0, len(batch_env), 4]))
    run = _simulate_compiled if batch_env.compiled else _simulate
    try:
        return run(batch_env, algorithm, steps, training, tf.convert_to_tensor(reset))
    except tf.errors.OpError as error:
        if isinstance(batch_env.error, checks.ActionError):
            calls.refuse(algorithm, "perform", str(batch_env.error))
        if batch_env.error is not None:
            raise batch_env.error from error
        raise


def _simulate(batch_env, algorithm, steps, training, reset) -> dict[str, tf.Tensor]:
    return _graph(batch_env, algorithm, tf.constant(steps), training, reset)


def _simulate_compiled(
    batch_env, algorithm, steps, training, reset
) -> dict[str, tf.Tensor]:
    """The same in one XLA program, whose results have a fixed size."""
    parts = []
    for start in range(0, steps, COMPILED_STEPS):
        size = min(steps - start, COMPILED_STEPS)
        ended = _program(batch_env, algorithm, tf.constant(size), training, reset)
        batch_env.steps += size * len(batch_env)
        parts.append(ended[:size])
        reset = tf.constant(False)
        if training:  # Programs cannot raise on the way.
            algorithm.metrics.require_finite(type(algorithm).__name__)
    return _result(tf.concat(parts, 0))


COMPILED_STEPS = 1024
"""Batch steps of the program that is compiled; it stops earlier if asked to."""


@tf.function(autograph=False)
def _graph(
    batch_env: Any,
    algorithm: Any,
    steps: tf.Tensor,
    training: bool,
    reset: tf.Tensor,
) -> dict[str, tf.Tensor]:
    run = _together if batch_env.parts == 1 else _in_turns
    return _result(run(batch_env, algorithm, steps, training, reset, steps))


@tf.function(autograph=False, jit_compile=True)
def _program(
    batch_env: Any,
    algorithm: Any,
    steps: tf.Tensor,
    training: bool,
    reset: tf.Tensor,
) -> tf.Tensor:
    with conditional.program():
        return _together(batch_env, algorithm, steps, training, reset, COMPILED_STEPS)


def _together(batch_env, algorithm, steps, training, reset, capacity) -> tf.Tensor:
    """All rows step at the same time; returns ends of episodes, `[capacity, N, 4]`."""
    everyone = tf.range(len(batch_env))

    def body(_, index, step, ended):
        action = _act(batch_env, algorithm, everyone, step, training)
        more = index + 1 < steps
        outcome, following = batch_env.simulate(step, action, more)
        _learn(algorithm, everyone, step.observation, action, outcome, training)
        if training and algorithm.paused:
            more &= ~algorithm.paused()
        return more, index + 1, following, ended.write(index, outcome.ended)

    shape = [len(batch_env), 4]
    ended = tf.TensorArray(tf.float32, capacity, element_shape=shape)
    step = batch_env.begin(reset)
    *_, ended = _while(lambda more, *_: more, body, (True, 0, step, ended))
    return ended.stack()


def _in_turns(batch_env, algorithm, steps, training, reset, _) -> tf.Tensor:
    """Two halves take turns; returns ends of episodes, `[steps, N, 4]`."""
    size = len(batch_env) // 2
    act = functools.partial(_act, batch_env, algorithm, training=training)
    learn = functools.partial(_learn, algorithm, training=training)
    if not tf.config.functions_run_eagerly():  # Each is traced once, though used twice.
        act, learn = (tf.function(f, autograph=False) for f in (act, learn))

    def rows(part):
        return part * size + tf.range(size)

    def body(index, step, last, ended):
        """Start one half, which acts at this step; finish the other one."""
        part = index % 2
        other = 1 - part
        action = act(rows(part), step)
        more = index // 2 + 1 < steps
        outcome, following = batch_env.simulate(step, action, more, part, other)
        learn(rows(other), *last, outcome)
        last = step.observation, action
        return index + 1, following, last, ended.write(index - 1, outcome.ended)

    both = batch_env.begin(reset)
    first, second = (
        tf.nest.map_structure(lambda x, part=part: x[part], both)
        for part in (slice(size), slice(size, None))
    )
    action = act(rows(0), first)
    started, _ = batch_env.simulate(first, action, steps > 1, 0, -1)
    with tf.control_dependencies([started.ended]):
        second = tf.nest.map_structure(tf.identity, second)
    ended = tf.TensorArray(tf.float32, 2 * steps)
    _, step, last, ended = _while(
        lambda index, *_: index < 2 * steps,
        body,
        (1, second, (first.observation, action), ended),
    )
    outcome, _ = batch_env.simulate(step, last[1], False, -1, 1)
    learn(rows(1), *last, outcome)
    ended = ended.write(2 * steps - 1, outcome.ended)
    return tf.reshape(ended.stack(), [steps, 2 * size, 4])


def _act(batch_env, algorithm, rows: tf.Tensor, step: Any, training: bool) -> Any:
    """Begin episodes where they are new, and choose actions `[K, ...]`."""
    begin_episodes(algorithm, rows, step.first, training)
    space = batch_env.action_space
    return calls.perform(algorithm, rows, step.observation, training, space)


def _learn(algorithm, rows, observation, action, outcome, training: bool) -> None:
    """Tell the algorithm what happened, if it is training."""
    if not training:
        return
    calls.call(
        algorithm,
        "experience",
        rows,
        observation,
        action,
        outcome.reward,
        outcome.terminated,
        outcome.truncated,
        outcome.observation,
    )
    end_episodes(algorithm, rows, outcome.done)


def begin_episodes(
    algorithm: Any, rows: tf.Tensor, new: tf.Tensor, training: bool
) -> None:
    """Tell an algorithm which ones of these rows begin an episode, if there are any."""
    for_rows(
        lambda rows: calls.call(algorithm, "begin_episodes", rows, training), rows, new
    )


def end_episodes(algorithm: Any, rows: tf.Tensor, done: tf.Tensor) -> None:
    """Tell an algorithm which ones of these rows end one, if there are any."""
    for_rows(lambda rows: calls.call(algorithm, "end_episodes", rows), rows, done)


def for_rows(
    function: Callable[[tf.Tensor], None], rows: tf.Tensor, selected: tf.Tensor
) -> None:
    """Call a function with the selected ones of these rows, if there are any."""

    def call(rows, selected):
        function(tf.boolean_mask(rows, selected))

    conditional.when(tf.reduce_any(selected), call, rows, selected)


def _while(condition, body, variables) -> Any:
    return tf.while_loop(condition, body, variables, parallel_iterations=1)


def _result(ended: tf.Tensor) -> dict[str, tf.Tensor]:
    """Names for the columns of ends of episodes `[steps, N, 4]`."""
    terminated, truncated, score, length = tf.unstack(ended, axis=2)
    done = terminated + truncated > 0
    return {
        "done": done,
        "score": tf.where(done, score, 0.0),
        "length": tf.cast(tf.where(done, length, 0.0), tf.int32),
    }
