"""Interaction of a batch of environments with an algorithm, in one graph function."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.tools import algorithm as algorithm_
from agents.tools import calls, checks, conditional
from agents.tools import steps as steps_


def simulate(
    batch_env: steps_.Environments,
    algorithm: algorithm_.Algorithm,
    steps: int | tf.Tensor,
    training: bool = True,
    reset: bool | tf.Tensor = False,
    until: Callable[[], tf.Tensor] | None = None,
) -> dict[str, tf.Tensor]:
    """Run environments and algorithm together for a number of batch steps.

    The algorithm always sees the true last observation of an episode. Everything
    happens in one graph function, traced once for training and once for evaluation.

    A call continues where the last one ended, so splitting steps into several calls
    changes nothing: the results only depend on seeds and steps.

    If the environments have two parts, their steps alternate: one part steps while the
    algorithm chooses actions for the other part and learns from it. The algorithm is
    called twice per batch step, each time for half of the rows. An update after the
    last row of a batch step therefore finds the first half one step ahead: it has
    already chosen its next actions, even at the end of a call.

    Args:
      batch_env: Environments in the graph, `N` rows; see `InGraphBatchEnv`.
      algorithm: Acts and, in training, observes the transitions.
      steps: Number of batch steps, each of `N` environment steps.
      training: Whether the algorithm explores and learns.
      reset: Whether to abandon running episodes, so that all rows begin new ones. This
        also happens when `training` or the algorithm changes between calls, so that
        no episode mixes both, and after an error.
      until: Function that returns after every step of training whether to return early;
        always the same object, since it is traced. Halves that take turns ignore it.

    Returns:
      `done` bool, `score` float32 and `length` int32, each `[steps, N]`. Score (raw
      return) and length belong to the episode that ended there, else they are zero.
      Zeros follow if it returned early; `batch_env.steps` counts the actual steps.

    Raises:
      AlgorithmError: for a mistake in the class of the algorithm.
      Exception: of the environments, for example `EnvProcessError`.
      NotFiniteError: if losses of a compiled run are not finite.
    """
    last, now = batch_env.user, (weakref.ref(algorithm), training)
    if reset or last not in (None, now):
        batch_env.discontinue()
    batch_env.user = now
    steps = int(steps)
    if not steps:
        return steps_.ended(tf.zeros([0, len(batch_env), steps_.RECORD]))
    run = _simulate_compiled if batch_env.compiled else _simulate
    current, batch_env.current = batch_env.current, None  # Unless there is an error.
    try:
        if current is None:
            begin = _traced(_begin, batch_env, algorithm)
            current = begin(batch_env, algorithm, training)
        until = until if training else None
        records, current = run(batch_env, algorithm, steps, training, current, until)
    except tf.errors.OpError as error:
        if isinstance(batch_env.error, checks.ActionError):
            calls.refuse(algorithm, "perform", str(batch_env.error))
        if batch_env.error is not None:
            raise batch_env.error from error
        calls.locate(algorithm, error)
        raise
    batch_env.current = current
    return steps_.ended(records)


def _simulate(
    batch_env, algorithm, steps, training, current, until
) -> tuple[tf.Tensor, Any]:
    """Return records of all steps `[steps, N, RECORD]`, and the state to continue."""
    graph = _traced(_graph, batch_env, algorithm)
    return graph(batch_env, algorithm, tf.constant(steps), training, current, until)


def _simulate_compiled(
    batch_env, algorithm, steps, training, current, until
) -> tuple[tf.Tensor, Any]:
    """Implement `_simulate` by an XLA program with results of a fixed size."""
    program = _traced(_program, batch_env, algorithm, jit_compile=True)
    parts, missing, reached = [], steps, False
    while missing and not reached:
        size = min(missing, COMPILED_STEPS)
        count, records, current = program(
            batch_env, algorithm, tf.constant(size), training, current, until
        )
        batch_env.steps += int(count) * len(batch_env)
        parts.append(records[:size])
        missing -= size
        if training:  # Programs cannot raise before their end.
            algorithm.metrics.require_finite(type(algorithm).__name__)
            reached = until and until()
    parts.append(tf.zeros([missing, len(batch_env), steps_.RECORD]))
    return tf.concat(parts, 0), current


COMPILED_STEPS = 1024
"""Batch steps of the compiled program, which stops earlier on request."""


def _traced(
    body: Callable,
    batch_env: steps_.Environments,
    algorithm: algorithm_.Algorithm,
    **options: Any,
) -> Callable:
    """Return the graph function of this pair, kept as long as both exist.

    One function for all pairs would keep their variables until the process ends, and of
    what has the same code, TensorFlow warns that it is traced too often.
    """
    kept = vars(batch_env).setdefault("graphs", weakref.WeakKeyDictionary())
    graphs = kept.setdefault(algorithm, {})
    if body not in graphs:
        graphs[body] = tf.function(functools.partial(body), autograph=False, **options)
    return graphs[body]


def traces(
    batch_env: steps_.Environments, algorithm: algorithm_.Algorithm
) -> dict[str, int]:
    """Return how often the graph functions of this pair were traced, by their names."""
    graphs = vars(batch_env).get("graphs", {}).get(algorithm, {})
    return {
        body.__name__.strip("_"): graph.experimental_get_tracing_count()
        for body, graph in graphs.items()
    }


def _begin(
    batch_env: steps_.Environments, algorithm: algorithm_.Algorithm, training: bool
) -> Any:
    """Begin all episodes; return the state from which a call continues."""
    before = batch_env.begin()
    if batch_env.parts == 1:
        return before
    size = len(batch_env) // 2
    first, second = (
        tf.nest.map_structure(lambda x, part=part: x[part], before)
        for part in (slice(size), slice(size, None))
    )
    action = _act(batch_env, algorithm, tf.range(size), first, training)
    return first.observation, action, second


def _graph(
    batch_env: steps_.Environments,
    algorithm: algorithm_.Algorithm,
    steps: tf.Tensor,
    training: bool,
    current: Any,
    until: Callable[[], tf.Tensor] | None = None,
) -> tuple[tf.Tensor, Any]:
    arguments = batch_env, algorithm, steps, training, current
    if batch_env.parts == 2:
        return _in_turns(*arguments)
    _, records, current = _together(*arguments, until, steps)
    return records, current


def _program(
    batch_env: steps_.Environments,
    algorithm: algorithm_.Algorithm,
    steps: tf.Tensor,
    training: bool,
    current: Any,
    until: Callable[[], tf.Tensor] | None = None,
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    arguments = batch_env, algorithm, steps, training, current, until
    with conditional.program():
        return _together(*arguments, COMPILED_STEPS)


def _together(
    batch_env, algorithm, steps, training, before, until, capacity
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Step all rows at the same time.

    Returns:
      Number of steps, their records `[capacity, N, RECORD]`, and the next state.
    """

    def body(_, index, before, records):
        everyone = tf.range(len(batch_env))  # Here, its value is known in the body.
        action = _act(batch_env, algorithm, everyone, before, training)
        after, following = batch_env.simulate(before, action)
        _learn(algorithm, everyone, before.observation, action, after, training)
        more = index + 1 < steps
        if until is not None:
            more &= ~until()
        return more, index + 1, following, records.write(index, after.record)

    shape = [len(batch_env), steps_.RECORD]
    records = tf.TensorArray(tf.float32, capacity, element_shape=shape)
    variables = True, 0, before, records
    _, count, before, records = _while(lambda more, *_: more, body, variables)
    return count, records.stack(), before


def _in_turns(batch_env, algorithm, steps, training, current) -> tuple[tf.Tensor, Any]:
    """Step two halves in turns; return records `[steps, N, RECORD]` and next state.

    After a call the first half has chosen its actions, as always when the second half
    learns, but its step begins with the next call: no step is open between calls.
    """
    size = len(batch_env) // 2
    act = functools.partial(_act, batch_env, algorithm, training=training)
    learn = functools.partial(_learn, algorithm, training=training)

    def rows(part):
        return part * size + tf.range(size)

    def body(index, last, before, records):
        """Start one half, which acts at this step; finish the other one."""
        part = index % 2
        other = 1 - part
        action = act(rows(part), before)
        start = tf.where(index < 2 * steps, part, -1)
        after, following = batch_env.simulate(before, action, start, other)
        learn(rows(other), *last, after)
        last = tf.nest.map_structure(
            lambda x, y: tf.ensure_shape(x, y.shape), (before.observation, action), last
        )
        return index + 1, last, following, records.write(index - 1, after.record)

    *last, second = current
    started, _ = batch_env.simulate(second, last[1], 0, -1)
    with tf.control_dependencies([started.record]):
        second = tf.nest.map_structure(tf.identity, second)
    records = tf.TensorArray(tf.float32, 2 * steps)
    _, last, second, records = _while(
        lambda index, *_: index <= 2 * steps, body, (1, tuple(last), second, records)
    )
    shape = [steps, 2 * size, steps_.RECORD]
    return tf.reshape(records.stack(), shape), (*last, second)


def _act(
    batch_env, algorithm, rows: tf.Tensor, before: steps_.Before, training: bool
) -> Any:
    """Begin episodes in new rows, and choose actions `[K, ...]`."""
    begin_episodes(algorithm, rows, before.first, training)
    space = batch_env.action_space
    return calls.perform(algorithm, rows, before.observation, training, space)


def _learn(
    algorithm, rows, observation, action, after: steps_.After, training: bool
) -> None:
    """Report the transitions to the algorithm, if it is training."""
    if not training:
        return
    calls.call(
        algorithm,
        "experience",
        rows,
        observation,
        action,
        after.reward,
        after.terminated,
        after.truncated,
        after.observation,
    )
    end_episodes(algorithm, rows, after.done)


def begin_episodes(
    algorithm: algorithm_.Algorithm, rows: tf.Tensor, new: tf.Tensor, training: bool
) -> None:
    """Tell an algorithm which of these rows begin an episode, if any do."""
    conditional.for_rows(
        lambda rows: calls.call(algorithm, "begin_episodes", rows, training), rows, new
    )


def end_episodes(
    algorithm: algorithm_.Algorithm, rows: tf.Tensor, done: tf.Tensor
) -> None:
    """Tell an algorithm which of these rows end an episode, if any do."""
    conditional.for_rows(
        lambda rows: calls.call(algorithm, "end_episodes", rows), rows, done
    )


def _while(condition, body, variables) -> Any:
    return tf.while_loop(condition, body, variables, parallel_iterations=1)
