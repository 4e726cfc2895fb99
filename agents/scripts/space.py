"""Which values of a config are searched through, and where.

A YAML file maps keys of the config to a range or to a list of choices:

algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}
algorithm.epochs: {low: 1, high: 8, int: true}
algorithm.network: [small, {layers: [32, 32]}]
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from agents.scripts import experiment
from agents.tools import config as config_


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between two bounds, which are included."""

    low: float
    high: float
    log: bool = False
    """Sample the logarithm uniformly."""
    int: bool = False
    step: float | None = None
    """Distance of neighbouring values; none for any number, or any integer."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError("low and high must be finite.")
        if self.low >= self.high:
            raise ValueError(
                f"low must be below high, got {self.low:g} and {self.high:g}."
            )
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a positive low, got {self.low:g}.")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other.")
        numbers = (self.low, self.high, self.step or 1.0)
        if self.int and not all(float(x).is_integer() for x in numbers):
            raise ValueError("with int, low, high and step must be integers.")
        if self.step is not None:
            if self.step <= 0:
                raise ValueError(f"step must be positive, got {self.step:g}.")
            steps = (self.high - self.low) / self.step
            if not math.isclose(steps, round(steps), rel_tol=1e-9):
                raise ValueError("high must be low plus a multiple of step.")

    def suggest(self, trial: Any, key: str) -> Any:
        """Value of a trial."""
        if self.int:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return trial.suggest_int(key, low, high, step=step, log=self.log)
        return trial.suggest_float(
            key, self.low, self.high, step=self.step, log=self.log
        )

    def examples(self) -> list:
        """Values of which the config must take one."""
        if self.int:
            return [int(self.low), int(self.high)]
        if self.step:
            return [self.low + self.step]
        return [self.low + (self.high - self.low) / math.e]  # No integer, that is.


@dataclasses.dataclass(frozen=True)
class Choices:
    """Values without an order."""

    values: tuple

    def suggest(self, trial: Any, key: str) -> Any:
        """Value of a trial."""
        # As JSON, because Optuna knows no lists and mappings, and takes 1 for true.
        texts = [json.dumps(value) for value in self.values]
        return json.loads(trial.suggest_categorical(key, texts))

    def examples(self) -> list:
        """Values of which the config must take one."""
        return list(self.values)


class Space:
    """Config keys and what each is chosen from."""

    def __init__(self, dimensions: dict[str, Range | Choices]) -> None:
        self.dimensions = dimensions

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values of an Optuna trial, by key."""
        return {key: x.suggest(trial, key) for key, x in self.dimensions.items()}

    def require(self, values: dict) -> None:
        """Raise ConfigError if a complete config takes no value of some key."""
        for key, dimension in self.dimensions.items():
            errors = []
            for example in dimension.examples():
                try:
                    resolve(values, {key: example})
                except config_.ConfigError as error:
                    errors.append(error)
                else:
                    break
            else:
                raise errors[0]

    def to_dict(self) -> dict[str, Any]:
        """Content of a file that `load` reads."""
        return {
            key: list(x.values) if isinstance(x, Choices) else config_.to_dict(x)
            for key, x in self.dimensions.items()
        }


def resolve(values: dict, chosen: dict[str, Any]) -> experiment.Config:
    """Config with chosen values, checked as those of `--set`; raises ConfigError."""
    return experiment.resolve(config_.override(values, assignments(chosen)))


def assignments(chosen: dict[str, Any]) -> list[str]:
    """Values as `train --set` takes them."""
    return [f"{key}={json.dumps(value)}" for key, value in chosen.items()]


def load(filename: str | pathlib.Path) -> Space:
    """Space of a YAML file; raises ConfigError for anything wrong with it."""
    values = config_.load(filename)
    if not isinstance(values, dict) or not values:
        raise config_.ConfigError(
            f"{filename} must map config keys to ranges, such as "
            "'algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}'."
        )
    return Space({key: _dimension(key, x, filename) for key, x in values.items()})


def _dimension(key: Any, value: Any, filename: str | pathlib.Path) -> Range | Choices:
    """Range or choices of one key."""
    where = f"{filename}, key {key!r}"
    if key == "name" or not isinstance(key, str):
        raise config_.ConfigError(f"{where}: this is nothing that can be varied.")
    if isinstance(value, list):
        return Choices(_distinct(value, where))
    if not isinstance(value, dict):
        raise config_.ConfigError(
            f"{where}: expected a list of choices or a mapping with low and high, got "
            f"{value!r}."
        )
    known = [field.name for field in dataclasses.fields(Range)]
    for name in value:
        if name not in known:
            hint = config_.did_you_mean(name, known)
            raise config_.ConfigError(f"{where}: unknown {name!r} of a range; {hint}")
    for name in ("low", "high"):
        if name not in value:
            raise config_.ConfigError(f"{where}: the range has no {name!r}.")
    try:
        return config_.build(Range, value, key)
    except config_.ConfigError as error:
        raise config_.ConfigError(f"{filename}, {error}") from error


def _distinct(values: Iterable, where: str) -> tuple:
    """Choices, if they can be told apart and written into a config."""
    try:
        texts = [json.dumps(value, allow_nan=False) for value in values]
    except (TypeError, ValueError) as error:
        raise config_.ConfigError(
            f"{where}: choices are plain YAML values: {error}."
        ) from error
    if not texts or len(set(texts)) < len(texts):
        raise config_.ConfigError(f"{where}: expected different choices, got {values}.")
    return tuple(json.loads(text) for text in texts)
