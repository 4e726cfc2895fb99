"""Search spaces: the values of a config to vary, with their ranges.

A YAML file maps keys of the config to a range or to a list of choices:

    algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}
    algorithm.epochs: {low: 1, high: 8, int: true}
    algorithm.network: [small, {layers: [32, 32]}]
"""

import dataclasses
import itertools
import json
import math
import pathlib
import random
from collections.abc import Iterable
from typing import Any

from agents.experiments import config as experiment
from agents.tools import config as config_
from agents.tools import config_files, sections

COMBINATIONS = 200
"""Largest number of combinations of choices beside which a value is tried."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included."""

    low: float
    high: float
    log: bool = False
    """Sample the logarithm uniformly."""
    int: bool = False
    step: float | None = None
    """Distance of neighboring values; none for all numbers or integers."""

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
        if self.int and max(map(abs, numbers)) > 2**53:
            raise ValueError("with int, low and high must be at most 2**53.")
        if self.step is not None:
            if self.step <= 0:
                raise ValueError(f"step must be positive, got {self.step:g}.")
            steps = (self.high - self.low) / self.step
            exact = 0.0 if self.int else 1e-9
            if not math.isclose(steps, round(steps), rel_tol=exact):
                raise ValueError("high must be low plus a multiple of step.")

    def suggest(self, trial: Any, key: str) -> Any:
        """Suggest a value for a trial."""
        if self.int:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return trial.suggest_int(key, low, high, step=step, log=self.log)
        return trial.suggest_float(
            key, self.low, self.high, step=self.step, log=self.log
        )

    def examples(self) -> list:
        """Return values at least one of which the config must accept."""
        if self.int:
            return [int(self.low), int(self.high)]
        if self.step:
            return [self.low + self.step]
        return [self.low + (self.high - self.low) / math.e]  # Never an integer.


@dataclasses.dataclass(frozen=True)
class Choices:
    """Values without an order."""

    values: tuple

    def suggest(self, trial: Any, key: str) -> Any:
        """Suggest a value for a trial."""
        # JSON, because Optuna supports no lists and mappings, and takes 1 for true.
        texts = [json.dumps(value) for value in self.values]
        return json.loads(trial.suggest_categorical(key, texts))

    def examples(self) -> list:
        """Return values at least one of which the config must accept."""
        return list(self.values)


class Space:
    """Config keys with their ranges or choices."""

    def __init__(self, dimensions: dict[str, Range | Choices]) -> None:
        self.dimensions = dimensions

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Suggest values for an Optuna trial, by key."""
        return {key: x.suggest(trial, key) for key, x in self.dimensions.items()}

    def require(self, values: dict) -> None:
        """Raise ConfigError if no value of some key is valid in a complete config.

        A value may have an effect only beside choices of other keys.
        """
        choices = {
            k: x.values for k, x in self.dimensions.items() if isinstance(x, Choices)
        }
        single = [{key: choice} for key, x in choices.items() for choice in x]
        others = [{}, *single, *_combinations(choices)]
        for key, dimension in self.dimensions.items():
            errors = []
            for example, choice in itertools.product(dimension.examples(), others):
                try:
                    resolve(values, {**choice, key: example})
                except config_.ConfigError as error:
                    errors.append(error)
                else:
                    break
            else:
                raise self._refusal(key, errors)

    def _refusal(self, key: str, errors: list) -> config_.ConfigError:
        """Return the error that says most about a key, with advice about its range."""
        # Beside the right choices, a key of the config may be what is wrong.
        known = [x for x in errors if any(k in str(x) for k in self.dimensions)]
        error = next((x for x in errors if x not in known), errors[0])
        integer = f"'{key}' must be int," in str(error)
        if integer and isinstance(self.dimensions[key], Range):
            advice = "Add 'int: true' to its range for integers only."
            return config_.ConfigError(f"{error} {advice}")
        return error

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a file for `load`."""
        return {
            key: list(x.values) if isinstance(x, Choices) else sections.to_dict(x)
            for key, x in self.dimensions.items()
        }


def _combinations(choices: dict[str, tuple]) -> list[dict[str, Any]]:
    """Return all combinations of choices by key, or some of them if there are many."""
    if math.prod(map(len, choices.values())) > COMBINATIONS:
        draw = random.Random(0).choice
        return [{k: draw(x) for k, x in choices.items()} for _ in range(COMBINATIONS)]
    combinations = itertools.product(*choices.values())
    return [dict(zip(choices, values, strict=True)) for values in combinations]


def resolve(values: dict, chosen: dict[str, Any]) -> experiment.Config:
    """Return a config with chosen values, checked as with `--set`.

    Raises:
      ConfigError: for wrong values, and for a config without evaluations.
    """
    config = experiment.override(values, assignments(chosen))
    if not config.train.eval_episodes:
        raise config_.ConfigError(
            "config key 'train.eval_episodes' is 0, but evaluations decide which trial "
            "is better."
        )
    return config


def assignments(chosen: dict[str, Any]) -> list[str]:
    """Format values for `train --set`."""
    texts = {key: json.dumps(x, ensure_ascii=False) for key, x in chosen.items()}
    return [f"{key}={text}" for key, text in texts.items()]


def load(filename: str | pathlib.Path) -> Space:
    """Read a space from a YAML file; raises ConfigError if it is wrong."""
    values = config_files.load(filename)
    if not isinstance(values, dict) or not values:
        raise config_.ConfigError(
            f"{filename} must map config keys to ranges, such as "
            "'algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}'."
        )
    return Space({key: _dimension(key, x, filename) for key, x in values.items()})


def _dimension(key: Any, value: Any, filename: str | pathlib.Path) -> Range | Choices:
    """Create the range or choices of one key."""
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
        return sections.build(Range, value, key)
    except config_.ConfigError as error:
        raise config_.ConfigError(f"{filename}, {error}") from error


def _distinct(values: Iterable, where: str) -> tuple:
    """Check that choices are distinct and can be written into a config."""
    try:
        texts = [json.dumps(value, allow_nan=False) for value in values]
    except (TypeError, ValueError) as error:
        raise config_.ConfigError(
            f"{where}: choices are plain YAML values: {error}."
        ) from error
    if not texts or len(set(texts)) < len(texts):
        raise config_.ConfigError(f"{where}: expected different choices, got {values}.")
    return tuple(json.loads(text) for text in texts)
