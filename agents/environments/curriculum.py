"""Arguments of environments that change from episode to episode."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import batch_env, checks, external_process, schedules, sections
from agents.tools import config as config_


@dataclasses.dataclass(frozen=True)
class Draw:
    """Number that is drawn again for every episode, `{type: uniform, low:, high:}`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low is above high: {self.low} and {self.high}.")


TYPES = (*schedules.Schedule.TYPES, "uniform")
_KEYS = {*schedules.Schedule.KEYS, "low", "high"} - {"type"}


def schedules_of(kwargs: dict[str, Any]) -> dict[str, schedules.Schedule | Draw]:
    """Return the arguments of an environment that are schedules, by name.

    Other mappings, even with a `type`, are ordinary arguments.

    Raises:
      ConfigError: for mistakes in a schedule.
    """
    found = {}
    for name, value in sorted(kwargs.items(), key=lambda item: str(item[0])):
        if isinstance(value, schedules.Schedule | Draw):
            found[name] = value
        elif isinstance(value, dict) and "type" in value:
            kind, others = value["type"], value.keys() - {"type"}
            if kind in TYPES or (others and others <= _KEYS):
                found[name] = _read(dict(value), f"environment.kwargs.{name}")
    return found


def _read(value: dict[str, Any], path: str) -> schedules.Schedule | Draw:
    """Convert a mapping to a schedule over environment steps."""
    if value["type"] not in TYPES:
        raise config_.ConfigError(
            f"config key '{path}.type' is {value['type']!r}; "
            + config_.did_you_mean(value["type"], TYPES)
        )
    if value["type"] != "uniform":
        schedule = config_.convert(schedules.Schedule, value, path)
        if schedule.unit != "steps":
            raise config_.ConfigError(
                f"config key '{path}.unit' must be steps: environments know no updates."
            )
        return schedule
    del value["type"]
    missing = [repr(key) for key in ("low", "high") if key not in value]
    if missing:
        raise config_.ConfigError(
            f"config key '{path}' is uniform without {', '.join(missing)}."
        )
    return sections.build(Draw, value, path)


class Curriculum(gymnasium.Wrapper):
    """Wrapper that gives its environment the current arguments when an episode begins.

    Where the constructor takes an argument, the environment is recreated when its value
    has changed. Otherwise the attribute of that name is set, which is faster. Piecewise
    schedules of whole numbers give integers.

    Values are functions of the last seed, the number of episodes since then, and the
    environment steps of training at the beginning of the episode. As all environments
    of a batch step together, each counts these by itself from the last `begin_phase`.

    Args:
      make: Creates the environment from arguments that change.
      changing: Schedules by name of the argument.
      parameters: Names of arguments that `make` takes; None if it may take any.

    Raises:
      ConfigError: if there is neither an argument nor an attribute of some name.
    """

    def __init__(
        self,
        make: Callable[[dict[str, Any]], gymnasium.Env],
        changing: dict[str, schedules.Schedule | Draw],
        parameters: set[str] | None,
    ):
        self._make, self._schedules = make, changing
        self._attributes = (
            [] if parameters is None else sorted(changing.keys() - parameters)
        )
        self._random = np.random.default_rng(0)  # So descriptions are always the same.
        self.begin_phase(0, 0)
        self._arguments, attributes = self._draw()
        self._random = np.random.default_rng()
        super().__init__(make(self._arguments))
        for name in attributes:
            if not hasattr(self.unwrapped, name):
                known = parameters | {*vars(self.unwrapped)}
                public = {x for x in known if not x.startswith("_")}
                raise config_.ConfigError(
                    f"config key 'environment.kwargs.{name}' is neither an argument nor "
                    f"an attribute of {type(self.unwrapped).__name__}; "
                    + config_.did_you_mean(name, public)
                )

    def begin_phase(self, elapsed: int, rate: int):
        """Set the environment steps so far, and how many each step stands for."""
        self._elapsed, self._rate, self._steps = elapsed, rate, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        if seed is not None:
            self._random = np.random.default_rng([seed, 1])  # The environment has seed.
        arguments, attributes = self._draw()
        if arguments != self._arguments:
            self._replace(arguments)
            if seed is None:
                seed = int(self._random.integers(2**31))
        for name, value in attributes.items():
            setattr(self.unwrapped, name, value)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any):
        self._steps += 1
        return self.env.step(action)

    def _draw(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arguments and attributes of the coming episode."""
        step = np.float64(self._elapsed + self._steps * self._rate)
        values = {
            name: _value(schedule, step, self._random)
            for name, schedule in self._schedules.items()
        }
        attributes = {name: values.pop(name) for name in self._attributes}
        return values, attributes

    def _replace(self, arguments: dict[str, Any]):
        """Recreate the environment."""
        before = self.observation_space, self.action_space
        self.env.close()
        self.env, self._arguments = self._make(arguments), arguments
        if before != (self.observation_space, self.action_space):
            raise checks.EnvDataError(
                f"environment.kwargs {arguments} change the spaces of the environment, "
                "which a schedule may not."
            )


def _value(
    schedule: schedules.Schedule | Draw,
    step: np.float64,
    random: np.random.Generator,
) -> float | int:
    """Return the value of an episode that begins at this step."""
    if isinstance(schedule, Draw):
        return float(random.uniform(schedule.low, schedule.high))
    value = float(schedules.evaluate(schedule, step, np))
    pieces = schedule.values
    return int(value) if pieces and all(x.is_integer() for x in pieces) else value


def preparation(
    kwargs: dict[str, Any], batches: Sequence[batch_env.Backend]
) -> Callable[[int, int], None] | None:
    """Return the `prepare` function of `InGraphBatchEnv`; None without schedules."""
    if not schedules_of(kwargs):
        return None

    def prepare(elapsed: int, rate: int):
        for batch in batches:
            for row in range(len(batch)):
                env = batch[row]
                if isinstance(env, external_process.Remote):
                    env.call("begin_phase", elapsed, rate)()
                else:
                    env.begin_phase(elapsed, rate)

    return prepare
