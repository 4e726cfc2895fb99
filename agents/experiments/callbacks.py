"""User functions that follow a run, may stop it, and log their own metrics."""

import contextlib
import dataclasses
import inspect
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from agents.tools import config, errors


@dataclasses.dataclass(frozen=True)
class Event:
    """News of a run, for callbacks.

    A callback is a function of one event. It returns None; or false, to stop the run
    after the current phase; or a mapping of numbers by name, whose means over the phase
    become metrics of the run.

    Attributes:
      kind: `episode`: one has ended in training; `update`: there were updates since the
        last such event, of which there is at most one per half second or so;
        `evaluation`: one has ended.
      step: Environment steps of training so far.
      metrics: Score and length of the episode; means of the algorithm's metrics in this
        phase so far; or those of the evaluation: mean score and length, number of
        episodes, and quartiles of the scores.
    """

    kind: str
    step: int
    metrics: Mapping[str, float]


RESERVED = ("phase", "step", "seconds", "phase_seconds", "env_steps_per_second")
"""Names that reports give to other values than metrics."""


class Callbacks:
    """Functions that are called with every event of a run, in turn.

    Attributes:
      stopping: Whether one of them has asked to stop.
      names: Names of the metrics that they have logged so far, in order.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Find functions by their import paths `module:name`.

        Raises:
          ConfigError: if one is missing or does not take one argument.
        """
        self._functions = {path: _find(path) for path in paths}
        self.stopping = False
        self.names: list[str] = []
        self._logged: dict[str, list[float]] = {}

    def __bool__(self) -> bool:
        return bool(self._functions)

    def call(self, kind: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Pass an event to all functions.

        Raises:
          Failure: if one raises, or returns anything that is not allowed.
        """
        event = Event(kind, step, dict(metrics))
        for path, function in self._functions.items():
            with errors.framed(f"callback {path}", errors.Failure):
                answer = function(event)
                if isinstance(answer, Mapping):
                    self._log(path, answer)
                elif answer is not None:
                    self.stopping |= not answer

    def result(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the means logged since the last call, and forget them.

        Raises:
          Failure: if a name is already that of a value of the run.
        """
        means = {name: math.fsum(x) / len(x) for name, x in self._logged.items()}
        self._logged.clear()
        if taken := means.keys() & {*metrics, *RESERVED}:
            raise errors.Failure(
                f"a callback logs {min(taken)!r}, which is a value of the run itself; "
                "choose another name."
            )
        return means

    def _log(self, path: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            number = _number(value)
            if not (isinstance(name, str) and math.isfinite(number)):
                text = f"must log finite numbers by name, got {name!r}: {value!r}."
                raise errors.Failure(errors.line(f"callback {path} {text}"))
            self._logged.setdefault(name, []).append(number)
            if name not in self.names:
                self.names.append(name)


def _number(value: Any) -> float:
    """Convert a real number or an array with one to float; anything else gives NaN."""
    real = isinstance(value, numbers.Real) or getattr(value, "shape", None) == ()
    if real and not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)
    return math.nan


def _find(path: str) -> Any:
    """Return a function of one argument; raise ConfigError if there is none."""
    function = config.find(path)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise config.ConfigError(
            f"callback {path} must take one argument, the event; {error}."
        ) from None
    except ValueError:  # Functions in C have no signature.
        pass
    return function
