"""Conformance checks that apply to every algorithm."""

import collections
import contextlib
import functools
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.testing import conformance, mocks
from agents.tools import (
    actions,
    batch_env,
    calls,
    checkpoint,
    errors,
    in_graph_batch_env,
    simulation,
    spaces,
)
from agents.tools import algorithm as algorithm_

SUPPORTED = "An algorithm supports some spaces"
RUNS = "Functions run, also where TensorFlow traces them"
ACTIONS = "Actions lie in the action space"
ONE_TRACE = "Functions are traced once, and make no variables"
FROZEN = "Nothing persistent changes outside of training"
ALONE = "Rows act as if they were alone"
ROWS = "Calls change only the rows they name"
LEARNS = "Training changes what is trained"
METRICS = "Metrics are finite"
APART = "Policies decide as they perform, also apart from their rows"
SEED = "Same seeds give the same numbers"
GRAPH = "Graphs give the numbers of eager execution"
CHECKPOINT = "Checkpoints hold all that is persistent"
RESUMED = "What is restored goes on as if it had not been interrupted"

SPACES = (
    (gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-1, 1, (2,))),
    (
        gymnasium.spaces.Dict(
            a=gymnasium.spaces.Box(-1, 1, (3,)), b=gymnasium.spaces.Discrete(3)
        ),
        gymnasium.spaces.Discrete(3, start=1),
    ),
    (
        gymnasium.spaces.Box(-1, 1, (3,)),
        gymnasium.spaces.Dict(
            a=gymnasium.spaces.Discrete(2), b=gymnasium.spaces.Box(-2, 3, (1,))
        ),
    ),
)
"""Pairs of observation and action space to test algorithms on."""
NUM_AGENTS = 7
"""Number of rows, which no other dimension is likely to equal."""
MAX_LENGTH = 5


def check_algorithm(
    cls: Callable[..., Any],
    config: Any,
    observation_space: gymnasium.Space | None = None,
    action_space: gymnasium.Space | None = None,
    steps: int = 200,
    tolerance: float = 1e-5,
) -> None:
    """Check that an algorithm meets the contract of `tools.algorithm.Algorithm`.

    It acts in seven environments with random observations, whose episodes have one to
    five steps and terminate or are truncated. Make the config so small that the first
    update comes soon, and switch XLA off (`jit=False`) if updates draw random floats,
    because XLA and eager execution draw different ones.

    Args:
      cls: Class of the algorithm, called with observation and action space, number of
        agents, length of the longest episodes, config, and seed.
      config: Config, passed on unchanged.
      observation_space, action_space: Spaces to test on; by default those of `SPACES`
        that it does not refuse by `spaces.UnsupportedSpaceError`.
      steps: Batch steps within which trained variables must change.
      tolerance: Tolerance between graphs and eager execution; absolute, and relative to
        the largest number of an array.

    Raises:
      ConformanceError: one line with the broken rule, the place, and expected and
        actual values.
    """
    refused = []
    given = (observation_space, action_space)
    pairs = SPACES[:1] if None not in given else SPACES
    for pair in pairs:
        pair = [x if y is None else y for x, y in zip(pair, given, strict=True)]
        create = functools.partial(_create, cls, pair, config)
        text = f"Observations: {pair[0]}; actions: {pair[1]}."
        try:
            first = create(0)
            with _blamed(first):
                _check(first, create, pair, steps, tolerance)
        except spaces.UnsupportedSpaceError as error:
            refused.append(errors.reason(error))
        except calls.AlgorithmError as error:
            line = conformance.line(RUNS, error.place, "no error", error.reason)
            raise conformance.ConformanceError(f"{line} {text}") from error
        except conformance.ConformanceError as error:
            raise conformance.ConformanceError(f"{error} {text}") from None
    if len(refused) == len(pairs):
        reasons = "; ".join(dict.fromkeys(refused))
        conformance.fail(SUPPORTED, "__init__", "no error", reasons)


def _create(
    cls: Callable,
    pair: list[gymnasium.Space],
    config: Any,
    seed: int,
    num_agents: int = NUM_AGENTS,
) -> Any:
    arguments = *pair, num_agents, MAX_LENGTH, config, seed
    if not isinstance(cls, type):
        return cls(*arguments)
    with calls.blame(cls, "__init__", spaces.UnsupportedSpaceError):
        return cls(*arguments)


@contextlib.contextmanager
def _blamed(algorithm: Any) -> Iterator[None]:
    """Raise AlgorithmError for exceptions of eager execution in a user's function."""
    try:
        yield
    except (calls.AlgorithmError, conformance.ConformanceError):
        raise
    except Exception as error:
        found = calls.place(traceback.extract_tb(error.__traceback__))
        if found is None:
            raise
        with calls.blame(type(algorithm), found[0]):
            raise


def _check(
    first: Any,
    create: Callable[[int], Any],
    pair: list[gymnasium.Space],
    steps: int,
    tolerance: float,
) -> None:
    """Check an algorithm on one pair of spaces."""
    _check_perform(first, *pair, tolerance)
    _check_decide(create(0), pair[0], tolerance)
    _check_rows(create(0), create(0, num_agents=NUM_AGENTS + 1), pair[0])
    learner, envs = create(0), _environments(pair)
    with calls.eagerly():
        history, length = _learn(learner, envs, steps)
    expected = history, _values(learner)
    with calls.eagerly():
        twin = create(0)
        got = _simulate(twin, envs, length), _values(twin)
        conformance.require_same(SEED, f"{length} steps", expected, got)
    _check_graph(create(0), envs, length, expected, tolerance)
    with calls.eagerly():
        _check_checkpoint(learner, create(1), envs, length)


def _check_perform(
    algorithm: Any,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    tolerance: float,
) -> None:
    """Check acting by several sets of rows in a graph, with and without training."""
    everyone = list(range(NUM_AGENTS))
    observation = _samples(observation_space, 0, NUM_AGENTS)
    for training in (True, False):
        counts = collections.Counter()
        perform = _perform(algorithm, observation_space, training, counts)
        before, actions = _values(algorithm), {}
        for rows in (everyone, [2], [5, 0, 3]):
            _call(algorithm, "begin_episodes", tf.constant(everyone), training)
            action = perform(tf.constant(rows), _gather(observation, rows))
            where = f"perform of rows {rows}, training={training}"
            _require_actions(where, action_space, len(rows), action)
            if not training:
                together = actions.setdefault("everyone", action)
                expected = _gather(together, rows)
                conformance.require_same(ALONE, where, expected, action, tolerance)
        traces = counts["perform"]
        conformance.require(traces == 1, ONE_TRACE, "perform", "1 trace", traces)
        if not training:
            conformance.require_same(FROZEN, "perform", before, _values(algorithm))


def _check_decide(
    algorithm: Any, observation_space: gymnasium.Space, tolerance: float
) -> None:
    """Check that `decide` and `perform` agree in episodes of several steps.

    A `decide` that is made of `perform` may need the rows.
    """
    if type(algorithm).decide is algorithm_.Algorithm.decide:
        return
    everyone = tf.range(NUM_AGENTS)
    _call(algorithm, "begin_episodes", everyone, False)
    state = _call(algorithm, "initial_state", NUM_AGENTS)
    for step in range(3):
        observation = _samples(observation_space, step, NUM_AGENTS)
        before = _copies(checkpoint.attributes(algorithm))
        action, state = _call(algorithm, "decide", observation, state)
        after = _copies(checkpoint.attributes(algorithm))
        conformance.require_same(FROZEN, "decide", before, after)
        expected = _call(algorithm, "perform", everyone, observation, False)
        where = f"decide at step {step}"
        conformance.require_same(APART, where, expected, action, tolerance)


def _perform(
    algorithm: Any,
    observation_space: gymnasium.Space,
    training: bool,
    counts: collections.Counter,
) -> Callable:
    """Create a graph for any number of rows that counts its traces."""

    def perform(agent_indices, observation):
        counts["perform"] += 1
        return _call(algorithm, "perform", agent_indices, observation, training)

    specs = spaces.transform(
        lambda x: tf.TensorSpec([None, *x.shape], x.dtype),
        spaces.spec(observation_space),
    )
    signature = [tf.TensorSpec([None], tf.int32), specs]
    return tf.function(perform, signature, autograph=False)


def _require_actions(
    where: str, space: gymnasium.Space, size: int, action: Any
) -> None:
    """Raise ConformanceError unless actions `[size, ...]` lie in the space."""
    conformance.require_fits(ACTIONS, where, space, size, action)
    leaves = spaces.flatten(tf.nest.map_structure(np.array, action))
    for row, one in enumerate(actions.splitter(space)(leaves)):
        conformance.require(
            space.contains(one), ACTIONS, f"{where} [{row}]", space, one
        )


def _check_rows(
    algorithm: Any, larger: Any, observation_space: gymnasium.Space
) -> None:
    """Check that calls for two rows leave the state of other rows unchanged.

    Variables with one entry per agent are those that grow with one more agent.
    """
    algorithm.learning = False
    everyone, named = list(range(NUM_AGENTS)), [5, 2]
    shapes = {
        name: variable.shape for name, variable in checkpoint.attributes(larger).items()
    }
    found = {
        name: (variable, axis)
        for name, variable in checkpoint.attributes(algorithm).items()
        for axis, pair in enumerate(
            zip(variable.shape, shapes.get(name, ()), strict=False)
        )
        if pair == (NUM_AGENTS, NUM_AGENTS + 1)
    }
    _call(algorithm, "begin_episodes", tf.constant(everyone), True)
    for _ in _step(algorithm, observation_space, everyone, last=False):
        pass
    before = _others(found, named)
    for name in _step(algorithm, observation_space, named, last=True):
        after = _others(found, named)
        conformance.require_same(ROWS, f"{name} of rows {named}", before, after)


def _step(
    algorithm: Any, observation_space: gymnasium.Space, rows: list[int], last: bool
) -> Iterator[str]:
    """Take one step of rows; yield the name of each call after it."""
    size, rows = len(rows), tf.constant(rows)
    observation, following = (_samples(observation_space, x, size) for x in (0, 1))
    action = _call(algorithm, "perform", rows, observation, True)
    yield "perform"
    facts = tf.ones([size]), tf.fill([size], last), tf.fill([size], False)
    _call(algorithm, "experience", rows, observation, action, *facts, following)
    yield "experience"
    if last:
        _call(algorithm, "end_episodes", rows)
        yield "end_episodes"
        _call(algorithm, "begin_episodes", rows, True)
        yield "begin_episodes"


def _call(algorithm: Any, name: str, *arguments: Any) -> Any:
    """Call a function; raise AlgorithmError for any exception."""
    with calls.blame(type(algorithm), name):
        return getattr(algorithm, name)(*arguments)


def _others(
    variables: dict[str, tuple[tf.Variable, int]], rows: list[int]
) -> dict[str, Any]:
    """Return the values of variables with zeros for some rows, along their axes."""
    values = {}
    for name, (variable, axis) in variables.items():
        values[name] = variable.numpy().copy()
        np.moveaxis(values[name], axis, 0)[rows] = 0
    return values


def _learn(
    algorithm: Any, envs: in_graph_batch_env.InGraphBatchEnv, steps: int
) -> tuple[dict[str, Any], int]:
    """Train until trained variables change; return results and batch steps."""
    before = _values(algorithm, trainable=True)
    conformance.require(before, LEARNS, "persistent()", "trainable variables", "none")
    parts, length = [], 0
    while conformance.same(before, _values(algorithm, trainable=True)):
        where = f"{length} batch steps"
        conformance.require(length < steps, LEARNS, where, "other values", "the same")
        parts.append(simulation.simulate(envs, algorithm, algorithm.batch_steps))
        length += algorithm.batch_steps
    metrics = algorithm.metrics.result()
    for name, value in metrics.items():
        conformance.require(np.isfinite(value), METRICS, name, "a number", value)
    results = tf.nest.map_structure(lambda *x: np.concatenate(x), *parts)
    return {**results, "metrics": metrics}, length


def _simulate(
    algorithm: Any,
    envs: in_graph_batch_env.InGraphBatchEnv,
    steps: int,
    training: bool = True,
) -> dict[str, Any]:
    """Simulate from equal initial conditions; return results and metrics."""
    envs.discontinue(np.arange(NUM_AGENTS))
    algorithm.metrics.reset()
    results = simulation.simulate(envs, algorithm, steps, training)
    results = tf.nest.map_structure(np.array, results)
    return {**results, "metrics": algorithm.metrics.result()}


def _environments(
    pair: list[gymnasium.Space],
) -> in_graph_batch_env.InGraphBatchEnv:
    """Create a batch of mock environments."""
    rows = [mocks.RandomEnvironment(*pair, MAX_LENGTH) for _ in range(NUM_AGENTS)]
    envs = in_graph_batch_env.InGraphBatchEnv(batch_env.BatchEnv(rows, blocking=True))
    envs.discontinue(np.arange(NUM_AGENTS))
    return envs


def _check_graph(
    algorithm: Any,
    envs: in_graph_batch_env.InGraphBatchEnv,
    steps: int,
    expected: Any,
    tolerance: float,
) -> None:
    """Check training in the graph, and count the traces of later calls."""
    try:
        got = _simulate(algorithm, envs, steps), _values(algorithm)
    except ValueError as error:
        line = errors.reason(error)
        conformance.fail(ONE_TRACE, "simulate", "a graph", line)
    traces = max(simulation.traces(envs, algorithm).values())
    conformance.require(traces == 1, ONE_TRACE, "simulate", "1 trace", traces)
    conformance.require_same(GRAPH, f"{steps} steps", expected, got, tolerance)
    _simulate(algorithm, envs, 1, training=False)
    before = simulation.traces(envs, algorithm)
    _simulate(algorithm, envs, 2 * algorithm.batch_steps)
    _simulate(algorithm, envs, 2, training=False)
    where, after = "other numbers of steps", simulation.traces(envs, algorithm)
    conformance.require(before == after, ONE_TRACE, where, before, after)


def _check_checkpoint(
    algorithm: Any,
    restored: Any,
    envs: in_graph_batch_env.InGraphBatchEnv,
    steps: int,
) -> None:
    """Check that a restored algorithm evaluates and trains like the saved one."""
    saved = _values(algorithm)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = checkpoint.Checkpoints(folder)
        try:
            checkpoints.save(0, algorithm.persistent(), {})
            checkpoints.restore(restored.persistent())
        except ValueError as error:
            line = errors.reason(error)
            conformance.fail(CHECKPOINT, "persistent()", "what fits itself", line)
    conformance.require_same(CHECKPOINT, "persistent()", saved, _values(restored))
    both, evaluations, trainings = (algorithm, restored), [], []
    for each in both:
        everyone = tf.range(NUM_AGENTS)
        _call(each, "begin_episodes", everyone, True)  # Drops unfinished ones.
        before = _values(each)
        evaluations.append(_simulate(each, envs, 2 * MAX_LENGTH, training=False))
        conformance.require_same(FROZEN, "evaluation", before, _values(each))
    conformance.require_same(RESUMED, "evaluation", *evaluations)
    for each in both:
        # Memories are only compared by their effects, because of invalid data.
        results, values = _simulate(each, envs, steps), _values(each, memory=False)
        trainings.append((results, values))
    conformance.require_same(RESUMED, f"{steps} steps of training", *trainings)


def _values(
    algorithm: Any, trainable: bool = False, memory: bool = True
) -> dict[str, np.ndarray]:
    """Copy persistent variables, all or trainable ones, with or without memory."""
    tree = dict(algorithm.persistent())
    if not memory:
        tree.pop(checkpoint.MEMORY, None)
    found = checkpoint.variables(tree)
    chosen = {k: x for k, x in found.items() if x.trainable or not trainable}
    return _copies(chosen)


def _copies(variables: dict[str, tf.Variable]) -> dict[str, np.ndarray]:
    return {name: variable.numpy().copy() for name, variable in variables.items()}


def _samples(space: gymnasium.Space, seed: int, size: int) -> Any:
    """Draw random elements, tensors `[size, ...]`."""
    return spaces.transform(tf.constant, conformance.samples(space, seed, size))


def _gather(structure: Any, rows: list[int]) -> Any:
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), structure)
