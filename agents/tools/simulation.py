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

    A call goes on where the last one ended, so cutting many steps into several calls
    changes nothing: what happens is a function of seeds and steps.

    Where the environments are in two parts, their steps alternate: one part steps while
    the algorithm chooses actions for the other one and learns of it. So the algorithm
    is called twice per batch step, for half of the rows each time, and an update after
    the last row of a batch step finds the first half one step ahead: the first half
    has already chosen its next actions, at the end of a call too.

    Args:
      batch_env: Environments, `N` rows.
      algorithm: Told about all that happens.
      steps: Number of batch steps; every one is `N` environment steps.
      training: Let the algorithm explore and learn.
      reset: Discontinue running episodes first, so that all rows begin a new one. It
        is done in any case where `training` is not what it was in the call before, so
        that every episode is one or the other, and after an error.

    Returns:
      `done` bool, `score` float32 and `length` int32, each `[steps, N]`. Score (raw
      return) and length are those of the episode that ended there, else zero. Zeros
      follow where the algorithm paused; `batch_env.steps` counts what was done.

    Raises:
      AlgorithmError: for a mistake in the class of the algorithm.
      What the environments raise, for example `EnvProcessError`.
      FloatingPointError: if losses of a compiled run are not finite.
    """
    if reset or batch_env.training not in (None, training):
        batch_env.discontinue()
    batch_env.training = training
    steps = int(steps)
    if not steps:
        return _result(tf.zeros([0, len(batch_env), 4]))
    run = _simulate_compiled if batch_env.compiled else _simulate
    current, batch_env.current = batch_env.current, None  # Unless there is an error.
    try:
        if current is None:
            current = _begin(batch_env, algorithm, training)
        ended, current = run(batch_env, algorithm, steps, training, current)
    except tf.errors.OpError as error:
        if isinstance(batch_env.error, checks.ActionError):
            calls.refuse(algorithm, "perform", str(batch_env.error))
        if batch_env.error is not None:
            raise batch_env.error from error
        raise
    batch_env.current = current
    return _result(ended)


def _simulate(batch_env, algorithm, steps, training, current) -> tuple[tf.Tensor, Any]:
    """Ends of episodes `[steps, N, 4]`, and what to go on with."""
    return _graph(batch_env, algorithm, tf.constant(steps), training, current)


def _simulate_compiled(
    batch_env, algorithm, steps, training, current
) -> tuple[tf.Tensor, Any]:
    """The same by an XLA program, whose results have a fixed size."""
    parts, missing, paused = [], steps, False
    while missing and not paused:
        size = min(missing, COMPILED_STEPS)
        count, ended, current = _program(
            batch_env, algorithm, tf.constant(size), training, current
        )
        batch_env.steps += int(count) * len(batch_env)
        parts.append(ended[:size])
        missing -= size
        if training:  # Programs cannot raise on the way.
            algorithm.metrics.require_finite(type(algorithm).__name__)
            paused = algorithm.paused and algorithm.paused()
    parts.append(tf.zeros([missing, len(batch_env), 4]))
    return tf.concat(parts, 0), current


COMPILED_STEPS = 1024
"""Batch steps of the program that is compiled; it stops earlier if asked to."""


@tf.function(autograph=False)
def _begin(batch_env: Any, algorithm: Any, training: bool) -> Any:
    """What a call goes on with where all episodes begin."""
    step = batch_env.begin()
    if batch_env.parts == 1:
        return step
    size = len(batch_env) // 2
    first, second = (
        tf.nest.map_structure(lambda x, part=part: x[part], step)
        for part in (slice(size), slice(size, None))
    )
    action = _act(batch_env, algorithm, tf.range(size), first, training)
    return first.observation, action, second


@tf.function(autograph=False)
def _graph(
    batch_env: Any,
    algorithm: Any,
    steps: tf.Tensor,
    training: bool,
    current: Any,
) -> tuple[tf.Tensor, Any]:
    arguments = batch_env, algorithm, steps, training, current
    if batch_env.parts == 2:
        return _in_turns(*arguments)
    _, ended, current = _together(*arguments, steps)
    return ended, current


@tf.function(autograph=False, jit_compile=True)
def _program(
    batch_env: Any,
    algorithm: Any,
    steps: tf.Tensor,
    training: bool,
    current: Any,
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    with conditional.program():
        return _together(batch_env, algorithm, steps, training, current, COMPILED_STEPS)


def _together(
    batch_env, algorithm, steps, training, step, capacity
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """All rows step at the same time.

    Returns:
      Number of steps, ends of episodes `[capacity, N, 4]`, and what follows.
    """
    everyone = tf.range(len(batch_env))

    def body(_, index, step, ended):
        action = _act(batch_env, algorithm, everyone, step, training)
        outcome, following = batch_env.simulate(step, action)
        _learn(algorithm, everyone, step.observation, action, outcome, training)
        more = index + 1 < steps
        if training and algorithm.paused:
            more &= ~algorithm.paused()
        return more, index + 1, following, ended.write(index, outcome.ended)

    shape = [len(batch_env), 4]
    ended = tf.TensorArray(tf.float32, capacity, element_shape=shape)
    _, count, step, ended = _while(lambda more, *_: more, body, (True, 0, step, ended))
    return count, ended.stack(), step


def _in_turns(batch_env, algorithm, steps, training, current) -> tuple[tf.Tensor, Any]:
    """Two halves take turns; returns ends of episodes, `[steps, N, 4]`.

    At the end of a call the first half has chosen its actions, as always when the second
    one learns, but its step begins with the next call: nothing is under way in between.
    """
    size = len(batch_env) // 2
    act = functools.partial(_act, batch_env, algorithm, training=training)
    learn = functools.partial(_learn, algorithm, training=training)

    def rows(part):
        return part * size + tf.range(size)

    def body(index, last, step, ended):
        """Start one half, which acts at this step; finish the other one."""
        part = index % 2
        other = 1 - part
        action = act(rows(part), step)
        start = tf.where(index < 2 * steps, part, -1)
        outcome, following = batch_env.simulate(step, action, start, other)
        learn(rows(other), *last, outcome)
        last = tf.nest.map_structure(
            lambda x, y: tf.ensure_shape(x, y.shape), (step.observation, action), last
        )
        return index + 1, last, following, ended.write(index - 1, outcome.ended)

    *last, second = current
    started, _ = batch_env.simulate(second, last[1], 0, -1)
    with tf.control_dependencies([started.ended]):
        second = tf.nest.map_structure(tf.identity, second)
    ended = tf.TensorArray(tf.float32, 2 * steps)
    _, last, second, ended = _while(
        lambda index, *_: index <= 2 * steps, body, (1, tuple(last), second, ended)
    )
    return tf.reshape(ended.stack(), [steps, 2 * size, 4]), (*last, second)


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
