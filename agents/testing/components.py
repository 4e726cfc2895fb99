"""Conformance checks of components: in graphs, for any size, with checkpoints."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.testing import conformance
from agents.tools import checkpoint, errors, spaces

UNKNOWN_SIZES = "Methods can be traced for batch and time of unknown size"
ONE_TRACE = "Methods are traced once"
GRAPH = "Graphs do what the method does without them"
LEADING = "Results have the leading dimensions of the arguments"
CHECKPOINT = "A checkpoint of the component holds all that its methods use"
STATE = "All that methods change is in variables"


class Time(NamedTuple):
    """Argument `[B, T, ...]`: elements of a space at T steps.

    Attributes:
      space: Space of one element.
      length: T, if the method must know it for tracing.
    """

    space: gymnasium.Space
    length: int | None = None


class Rows(NamedTuple):
    """Argument int32 `[B]`: distinct rows below the count."""

    count: int


class Call:
    """Arguments of a method's call.

    Args:
      *arguments: A space stands for a batch of its elements, `[B, ...]`; see `Time` and
        `Rows` for others. Mappings, lists and tuples of these stand for structures. Any
        other argument is passed on unchanged, for example a random generator.
      leading: Number of leading dimensions that all results share with the arguments: 0
        for none, 1 for `[B]`, 2 for `[B, T]`; by default all of the arguments.
    """

    def __init__(self, *arguments: Any, leading: int | None = None) -> None:
        self.arguments = arguments
        self.sampled = [
            x for x in spaces.flatten(arguments, _children) if _is_sampled(x)
        ]
        if leading is None:
            timed = any(isinstance(x, Time) for x in self.sampled)
            leading = 2 if timed else min(len(self.sampled), 1)
        self.leading = leading


def check_component(
    component: Any,
    calls: Mapping[str, Call],
    sizes: Sequence[int] = (1, 4, 3),
    lengths: Sequence[int] = (1, 5),
    tolerance: float = 1e-5,
) -> None:
    """Check a component of an agent, given the spaces of its arguments.

    Its methods are called with random arguments of several sizes, once for each size
    and once more at the end, in the given order, both directly and as a graph for
    unknown sizes. Both ways must return and change the same. Then the component is
    saved, perturbed and restored.

    Args:
      component: A `tf.Module`, or a built Keras layer, or any object whose methods use
        no variables, for example a module of functions.
      calls: Calls by the names of methods, which may include `__call__`.
      sizes: Batch sizes `B`; arguments of type `Rows` limit them.
      lengths: Lengths `T` of sequences, used in turn.
      tolerance: Tolerance of floats; absolute, and relative to an array's largest.

    Raises:
      ConformanceError: one line with the broken rule, the place, and expected and
        actual values.
    """
    methods = [_Method(component, name, call) for name, call in calls.items()]
    variables = _unique(x for method in methods for x in method.variables())
    for seed, size in enumerate(sizes):
        for method in methods:
            values = method.draw(seed, size, lengths[seed % len(lengths)])
            _check_graph(method, values, variables, tolerance)
    for method in methods:
        conformance.require(
            method.traces == 1, ONE_TRACE, method.name, "1 trace", method.traces
        )
    _check_checkpoint(component, methods, variables, sizes[-1], lengths[-1])


class _Method:
    """Method with the arguments of its call."""

    def __init__(self, component: Any, name: str, call: Call) -> None:
        self.name, self.traces = name, 0
        self._call, self._method = call, getattr(component, name)

        def traced(*values):
            self.traces += 1
            return self(values)

        signature = [_signature(x) for x in call.sampled]
        self.graph = tf.function(traced, signature, autograph=False)

    def __call__(self, values: Sequence[Any]) -> Any:
        iterator = iter(values)
        return self._method(
            *spaces.transform(
                lambda x: next(iterator) if _is_sampled(x) else x,
                self._call.arguments,
                _children,
            )
        )

    def variables(self) -> list[tf.Variable]:
        """Return all variables of the graph, including those of other objects."""
        try:
            return list(self.graph.get_concrete_function().graph.variables)
        except Exception as error:
            line = errors.reason(error)
            conformance.fail(UNKNOWN_SIZES, self.name, "a graph", line)

    def draw(self, seed: int, size: int, length: int) -> list[Any]:
        """Draw random values of the sampled arguments."""
        counts = [x.count for x in self._call.sampled if isinstance(x, Rows)]
        size = min([size, *counts])
        return [
            _draw(x, 1000 * seed + index, size, length)
            for index, x in enumerate(self._call.sampled)
        ]

    def constants(self) -> list[Any]:
        """Return arguments with variables, which belong to the state."""
        kinds = tf.Module | tf.random.Generator | tf.Variable
        return [
            x
            for x in spaces.flatten(self._call.arguments, _children)
            if isinstance(x, kinds)
        ]

    def require_leading(self, values: list[Any], result: Any) -> None:
        """Raise ConformanceError unless results have the dimensions of arguments."""
        shapes = [
            tf.nest.flatten(value)[0].shape[: 2 if isinstance(x, Time) else 1]
            for x, value in zip(self._call.sampled, values, strict=True)
        ]
        expected = list(max(shapes, key=len, default=[]))[: self._call.leading]
        for path, leaf in conformance.leaves(result).items():
            got = list(leaf.shape[: self._call.leading])
            where = f"{self.name} {path}".strip()
            conformance.require(got == expected, LEADING, where, expected, got)


def _check_graph(
    method: _Method, values: list[Any], variables: list[tf.Variable], tolerance: float
) -> None:
    """Check that a method and its graph have equal effects on equal state."""
    before = _values(variables)
    results = []
    for function in (method, lambda x: method.graph(*x)):
        _assign(variables, before)
        returned = _copies(function(values))
        results.append((returned, _values(variables)))
    expected, got = results
    where = f"{method.name} {[x.shape for x in tf.nest.flatten(values)]}"
    conformance.require_same(GRAPH, where, expected[0], got[0], tolerance)
    conformance.require_same(GRAPH, f"{where} changes", expected[1], got[1], tolerance)
    method.require_leading(values, got[0])


def _check_checkpoint(
    component: Any,
    methods: list[_Method],
    variables: list[tf.Variable],
    size: int,
    length: int,
) -> None:
    """Check that a component behaves equally after saving and restoring it."""
    draws = [method.draw(len(methods) + 9, size, length) for method in methods]
    constants = [x for method in methods for x in method.constants()]
    saved = {"component": component, "arguments": dict(enumerate(constants))}
    saved = saved if variables else {}  # Functions need not be trackable.
    before = _values(variables)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = checkpoint.Checkpoints(folder)
        _require_works(component, checkpoints.save, 0, saved, {})
        results = [_copies(x(y)) for x, y in zip(methods, draws, strict=True)]
        for variable in variables:
            variable.assign(_perturbed(variable))
        _require_works(component, checkpoints.restore, saved)
    conformance.require_same(CHECKPOINT, "variable", before, _values(variables))
    for method, values, expected in zip(methods, draws, results, strict=True):
        got = _copies(method(values))
        conformance.require_same(STATE, f"{method.name} again", expected, got)


def _require_works(component: Any, function: Callable, *args: Any) -> None:
    """Save or restore; raise ConformanceError if that fails."""
    try:
        function(*args)
    except ValueError as error:
        name, line = type(component).__name__, errors.reason(error)
        conformance.fail(CHECKPOINT, name, "a checkpoint", line)


def _perturbed(variable: tf.Variable) -> tf.Tensor:
    """Return a different value."""
    if variable.dtype == tf.bool:
        return ~variable
    return variable + tf.ones([], variable.dtype)


def _draw(argument: Any, seed: int, size: int, length: int) -> Any:
    """Draw the structure of tensors for a sampled argument."""
    if isinstance(argument, Rows):
        rows = np.random.default_rng(seed).permutation(argument.count)
        return tf.constant(rows[:size], tf.int32)
    if isinstance(argument, Time):
        length = argument.length or length
        values = conformance.samples(argument.space, seed, size, length)
    else:
        values = conformance.samples(argument, seed, size)
    return spaces.transform(tf.constant, values)


def _signature(argument: Any) -> Any:
    """Return the structure of `tf.TensorSpec` for a sampled argument."""
    if isinstance(argument, Rows):
        return tf.TensorSpec([None], tf.int32)
    space, leading = argument, [None]
    if isinstance(argument, Time):
        space, leading = argument.space, [None, argument.length]
    return spaces.transform(
        lambda x: tf.TensorSpec([*leading, *x.shape], x.dtype), spaces.spec(space)
    )


def _is_sampled(argument: Any) -> bool:
    return isinstance(argument, gymnasium.Space | Time | Rows)


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return keys and children of mappings, lists and tuples of arguments."""
    return None if _is_sampled(node) else conformance.children(node)


def _unique(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    return list({id(x): x for x in variables}.values())


def _values(variables: list[tf.Variable]) -> dict[str, np.ndarray]:
    """Copy the values of variables, by number and name."""
    return {f"{i} {x.name}": x.numpy().copy() for i, x in enumerate(variables)}


def _assign(variables: list[tf.Variable], values: dict[str, np.ndarray]) -> None:
    for variable, value in zip(variables, values.values(), strict=True):
        variable.assign(value)


def _copies(structure: Any) -> dict[str, np.ndarray]:
    return {path: np.array(x) for path, x in conformance.leaves(structure).items()}
