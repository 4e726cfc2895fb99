"""Calls of an algorithm's functions, with mistakes reported in one line."""

import contextlib
import functools
import gc
import importlib.util
import inspect
import itertools
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import gymnasium

from agents.tools import checks, errors, spaces


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Execute functions of TensorFlow one operation after another, without traces."""
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class AlgorithmError(errors.Failure):
    """Mistake in the class of an algorithm, in one line.

    A note holds the traceback of the original exception, because TensorFlow removes the
    causes of exceptions that are raised during tracing.

    Attributes:
      place: Class, function, file and line.
      reason: Description of the mistake.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason.rstrip(".")

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}."


def call(algorithm: Any, name: str, *arguments: Any) -> Any:
    """Call a function of an algorithm.

    In eager mode, exceptions pass unchanged, for debuggers.

    Raises:
      AlgorithmError: for a user's mistake while TensorFlow traces the function.
    """
    import tensorflow as tf

    eager = tf.executing_eagerly()
    with contextlib.nullcontext() if eager else blame(type(algorithm), name):
        return getattr(algorithm, name)(*arguments)


def perform(
    algorithm: Any, rows: Any, observation: Any, training: bool, space: gymnasium.Space
) -> Any:
    """Call `perform` of an algorithm and check the actions that it returns.

    Raises:
      AlgorithmError: as for `call`, and if the actions are missing or do not fit the
        space.
    """
    import tensorflow as tf

    action = call(algorithm, "perform", rows, observation, training)
    expected = spaces.transform(
        lambda x: tf.TensorSpec([rows.shape[0], *x.shape], x.dtype), spaces.spec(space)
    )
    if not _fits(expected, action):
        reason = f"must return {_text(expected)}, got {_text(action)}"
        refuse(algorithm, "perform", reason)
    return action


def decide(policy: Any, observation: Any, state: Any, generator: Any = None) -> Any:
    """Call `decide` of a policy, away from the running episodes of its rows.

    Raises:
      AlgorithmError: if it changes variables or reads rows of them, while TensorFlow
        traces the function.
    """
    import tensorflow as tf

    result = policy.decide(observation, state, generator)
    if tf.executing_eagerly():
        return result
    graph = tf.compat.v1.get_default_graph()
    definition = graph.as_graph_def()
    nodes = [definition.node, *(x.node_def for x in definition.library.function)]
    writes = any(_WRITES.match(node.op) for node in itertools.chain(*nodes))
    if writes or _reads_rows(graph):
        defining = [x for x in classes_of_users(type(policy)) if "decide" in vars(x)]
        reason = (
            f"{'changes variables' if writes else 'reads rows of variables'}, so it "
            "cannot act apart from its running episodes; pass a state through the method "
            "decide"
        )
        refuse(policy, "decide" if defining else "perform", reason)
    return result


_WRITES = re.compile("Assign.*VariableOp$|ResourceScatter")
"""Operations that change variables."""


def _reads_rows(graph: Any) -> bool:
    """Return whether operations gather what variables hold for rows of episodes.

    `Algorithm.decide` names the rows `everyone`.
    """
    operations = graph.get_operations()  # In an order in which inputs come first.
    rows = {x for x in operations if x.name.endswith("everyone")}
    held = {x for x in operations if x.outputs and x.outputs[0].dtype == "resource"}
    for operation in operations:
        sources = {x.op for x in operation.inputs}
        if operation.type in ("ReadVariableOp", "Identity") and sources & held:
            held.add(operation)
        if operation.type not in _SHAPES and sources & rows:
            rows.add(operation)
    return any("Gather" in x.type and x.inputs[0].op in held for x in rows)


_SHAPES = ("Shape", "Size", "ZerosLike", "OnesLike")
"""Operations that do not depend on the values of their inputs."""


def refuse(algorithm: Any, name: str, reason: str) -> NoReturn:
    """Raise AlgorithmError for the return value of an algorithm's function."""
    cls = type(algorithm)
    raise AlgorithmError(f"{cls.__name__}.{name} at {_definition(cls, name)}", reason)


@contextlib.contextmanager
def blame(cls: type, name: str, *passing: type[Exception]) -> Iterator[None]:
    """Raise AlgorithmError for exceptions in a function of an algorithm.

    Exceptions in `passing` stay unchanged. So do exceptions in classes of this package
    without a user's line in the traceback, since they are not a user's mistake.
    """
    try:
        yield
    except (AlgorithmError, *passing):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{x.filename}:{x.lineno}" for x in frames if not _is_foreign(x)]
        if not lines and not classes_of_users(cls):
            raise
        where = lines[-1] if lines else _definition(cls, _refusing(error) or name)
        _fail(f"{cls.__name__}.{name} at {where}", _reason(error, name), error)


def locate(algorithm: Any, error: Exception) -> None:
    """Raise AlgorithmError if an operation of a user's line made a graph fail."""
    found = _places(algorithm, error) if classes_of_users(type(algorithm)) else []
    if not found:
        return
    lines = " or ".join(line for _, line in found)
    where = f"{type(algorithm).__name__}.{found[0][0]} at {lines}"
    _fail(where, graph_reason(error), error)


def _fail(where: str, reason: str, error: Exception) -> NoReturn:
    """Raise AlgorithmError with the traceback of an exception as a note."""
    raised = AlgorithmError(where, reason)
    raised.add_note("".join(traceback.format_exception(error)))
    raise raised from error


def graph_reason(error: Exception) -> str:
    """Return the line of an error in a graph without TensorFlow's additions."""
    text = str(error)
    if found := re.search(r"Detected unsupported operations .*?: (\w+)", text):
        prints = found[1] in ("PrintV2", "StringFormat")
        what = "tf.print" if prints else f"the operation {found[1]}"
        return (
            f"XLA cannot compile {what}; use others in functional environments, and set "
            "algorithm.jit=false for the rest."
        )
    line = text.partition("\n\t [[")[0].strip().split("\n")[-1]
    line = re.sub(r"\{\{.*?\}\} *| *\[Op:.*", "", line)
    return re.sub(r"(is not finite\.) : Tensor had .*", r"\1", line)


def _places(algorithm: Any, error: Exception) -> list[tuple[str, str]]:
    """Return functions and lines of a user that may have made a failed operation.

    The error tells the line, except for operations in branches, which it only names.
    """
    text = str(error)
    frames = re.findall(r'File "(.+?)", line (\d+), in (\S+)', text)
    candidates = [[traceback.FrameSummary(x, int(y), z) for x, y, z in frames]]
    if not frames and (node := re.search(r"\{\{node (\S+?)\}\}", text)):
        operations = (x for graph in _graphs(algorithm) for x in graph.get_operations())
        candidates = [x.traceback for x in operations if x.name == node[1]]
    found = {place(x) for x in candidates} - {None}
    return sorted(found)


def _graphs(algorithm: Any) -> Iterator[Any]:
    """Yield all graphs that use variables of an algorithm, and those inside of them."""
    import tensorflow as tf

    FuncGraph = tf.__internal__.FuncGraph  # noqa: N806
    handles = {id(getattr(x, "handle", x)) for x in algorithm.variables}
    for graph in [x for x in gc.get_objects() if issubclass(type(x), FuncGraph)]:
        outer = graph
        while isinstance(outer, FuncGraph):
            if any(id(captured) in handles for captured, _ in outer.captures):
                yield graph
                break
            outer = outer.outer_graph


def place(frames: Sequence[Any]) -> tuple[str, str] | None:
    """Return the function called here and the last line of a user, if there is one."""
    calling = [i for i, x in enumerate(frames) if x.filename == __file__]
    called = list(frames[calling[-1] + 1 :]) if calling else []
    lines = [f"{x.filename}:{x.lineno}" for x in called if not _is_foreign(x)]
    return (called[0].name, lines[-1]) if lines else None


def _fits(expected: Any, value: Any) -> bool:
    """Return whether a value has the expected structure, shapes and dtypes."""
    if isinstance(expected, dict):
        same = isinstance(value, Mapping) and value.keys() == expected.keys()
        return same and all(_fits(x, value[key]) for key, x in expected.items())
    if isinstance(expected, tuple):
        same = isinstance(value, list | tuple) and len(value) == len(expected)
        return same and all(map(_fits, expected, value))
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return False
    given = getattr(value.dtype, "as_numpy_dtype", value.dtype)
    fits = checks.holds(expected.dtype.as_numpy_dtype, given)
    return fits and expected.shape.is_compatible_with(value.shape)


def _text(value: Any) -> str:
    """Describe structure, dtypes and shapes of a value."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_text(x)}" for k, x in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_text, value))})"
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__
    sizes = ["K" if x is None else str(x) for x in value.shape]
    return f"{getattr(value.dtype, 'name', value.dtype)} [{', '.join(sizes)}]"


def _reason(error: Exception, name: str) -> str:
    """Return the reason of an error in an algorithm's function, with advice."""
    line = errors.reason(error)
    if type(error).__name__ == "OperatorNotAllowedInGraphError":
        line = line.partition(". ")[0] + "; use tf.where, tf.cond or tf.while_loop"
    if _refusing(error) == name and name in ARGUMENTS:
        line += f"; it is called with ({', '.join(ARGUMENTS[name])})"
    return line


def _refusing(error: Exception) -> str | None:
    """Return the name of a function whose signature refuses its arguments."""
    pattern = r"(?:.*\.)?(\w+)\(\) (?:takes|missing) .*positional argument"
    found = re.match(pattern, str(error)) if isinstance(error, TypeError) else None
    return found and found[1]


ARGUMENTS = {
    "__init__": (
        *("observation_space", "action_space", "num_agents"),
        *("max_length", "config", "seed"),
    ),
    "begin_episodes": ("agent_indices", "training"),
    "perform": ("agent_indices", "observation", "training"),
    "experience": (
        *("agent_indices", "observation", "action", "reward"),
        *("terminated", "truncated", "next_observation"),
    ),
    "end_episodes": ("agent_indices",),
}
"""Arguments of the functions that are called here."""


def _definition(cls: type, name: str) -> str:
    """Return file and line of a function of a class, or of the class without it."""
    classes = classes_of_users(cls) or [cls]
    functions = [vars(x)[name] for x in classes if callable(vars(x).get(name))]
    found = inspect.unwrap([*functions, classes[0]][0])
    try:
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):  # Typed at a prompt.
        return f"module {classes[0].__module__}"


def classes_of_users(cls: type) -> list[type]:
    """Return a class and its bases, without those of `FOREIGN` packages."""
    own = (x for x in cls.__mro__ if x is not object)
    return [x for x in own if x.__module__.partition(".")[0] not in FOREIGN]


FOREIGN = ("agents", "tensorflow", "keras", "numpy")
"""Packages whose lines say nothing about the class of a user."""


def _is_foreign(frame: traceback.FrameSummary) -> bool:
    """Return whether a line is not of a user, but of Python or a `FOREIGN` package."""
    name = frame.filename
    if name.startswith(_folders()) or "__autograph_generated_file" in name:
        return True
    return name.startswith(f"{_STANDARD}{os.sep}") and "-packages" not in name


_STANDARD = sysconfig.get_path("stdlib")


@functools.cache
def _folders() -> tuple[str, ...]:
    specs = map(importlib.util.find_spec, FOREIGN)
    return tuple(f"{os.path.dirname(x.origin)}{os.sep}" for x in specs)
