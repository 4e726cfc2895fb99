"""Hyperparameters that change during training."""

import dataclasses
import math
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Value that moves from one number to another, and then stays.

    In YAML and `--set`: `{type: linear, from: 3e-4, to: 0, over: 1e6}`, or `{type:
    piecewise, values: [0.1, 0.01], boundaries: [5e5]}`, which jumps at boundaries.
    """

    type: str
    """One of `TYPES`; both ends of an exponential schedule must be positive."""
    start: float | None = None
    """First value, or the only one of a constant schedule; `from` in YAML."""
    end: float | None = None
    """Last value; `to` in YAML."""
    over: float | None = None
    """Steps until the end is reached."""
    power: float = 1.0
    """Power of the remaining steps with which a polynomial schedule nears its end."""
    unit: str = "steps"
    """Environment `steps`, or `updates` of the algorithm."""
    values: tuple[float, ...] = ()
    """Values of a piecewise schedule, one more than boundaries."""
    boundaries: tuple[float, ...] = ()
    """Steps at which the next of the values begins."""

    KEYS = {"type": "type", "from": "start", "to": "end"}
    KEYS |= {x: x for x in ("over", "power", "unit", "values", "boundaries")}
    TYPES = ("constant", "linear", "polynomial", "cosine", "exponential", "piecewise")
    UNITS = ("steps", "updates")

    def __post_init__(self) -> None:
        if self.type not in self.TYPES:
            raise ValueError(f"Schedule type {self.type!r} is not one of {self.TYPES}.")
        if self.unit not in self.UNITS:
            raise ValueError(f"Schedule unit {self.unit!r} is not one of {self.UNITS}.")
        if self.type != "polynomial" and self.power != 1.0:
            raise ValueError(f"Only a polynomial schedule has a power: {self}.")
        if self.type == "piecewise":
            self._check_pieces()
        elif self.values or self.boundaries:
            raise ValueError(f"Only a piecewise schedule has values: {self}.")
        elif self.start is None:
            raise ValueError(f"A schedule takes a number to start from: {self}.")
        elif self.type == "constant":
            if (self.end, self.over) != (None, None):
                raise ValueError(f"A constant schedule has no end: {self}.")
        else:
            self._check_motion()

    def _check_pieces(self) -> None:
        if (self.start, self.end, self.over) != (None, None, None):
            raise ValueError(f"A piecewise schedule has only values: {self}.")
        ordered = tuple(sorted(set(self.boundaries)))
        if len(self.values) != len(ordered) + 1 or ordered != self.boundaries:
            raise ValueError(
                "A piecewise schedule takes increasing boundaries and one value more "
                f"than those: {self}."
            )

    def _check_motion(self) -> None:
        if self.end is None or self.over is None:
            raise ValueError(f"A schedule takes an end and a number of steps: {self}.")
        if self.over <= 0:
            raise ValueError(f"A schedule takes a positive number of steps: {self}.")
        if self.type == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError(f"An exponential schedule needs positive ends: {self}.")
        if self.power <= 0:
            raise ValueError(f"A polynomial schedule needs a positive power: {self}.")

    @classmethod
    def needed(cls, kind: str) -> tuple[str, ...]:
        """Return the required keys of a type in a config file."""
        if kind == "piecewise":
            return ("type", "values", "boundaries")
        moves = kind in cls.TYPES and kind != "constant"
        return ("type", "from") + (("to", "over") if moves else ())

    def to_dict(self) -> dict:
        """Return the form of the schedule in a config file."""
        keys = [*self.needed(self.type)]
        if self.type == "polynomial":
            keys.append("power")
        if self.unit != "steps":
            keys.append("unit")
        found = {key: getattr(self, self.KEYS[key]) for key in keys}
        return {k: list(x) if isinstance(x, tuple) else x for k, x in found.items()}


Scalar = float | Schedule
"""Hyperparameter that may follow a schedule."""


def ends(value: Any) -> tuple[float, ...]:
    """Return numbers that bound all values of a schedule or number."""
    if not isinstance(value, Schedule):
        return (value,)
    both = value.values or (value.start, value.end)
    return tuple(x for x in both if x is not None)


class Elapsed(NamedTuple):
    """Arguments of schedules: environment steps and updates so far, int64."""

    steps: Any
    updates: Any


def value(schedule: Any, time: Any) -> Any:
    """Evaluate a schedule to a float32 tensor; return other values unchanged.

    Args:
      schedule: Number or schedule.
      time: `Elapsed`, or just environment steps for schedules over these.
    """
    if not isinstance(schedule, Schedule):
        return schedule
    import tensorflow as tf

    if not isinstance(time, Elapsed):
        time = Elapsed(time, None)
    # Float32 cannot represent odd numbers above 2**24 steps.
    step = tf.cast(getattr(time, schedule.unit), tf.float64)
    return tf.cast(evaluate(schedule, step, tf), tf.float32)


def evaluate(schedule: Schedule, step: Any, ops: Any) -> Any:
    """Evaluate at a step, both float64, by the operations of TensorFlow or NumPy."""
    if schedule.type == "constant":
        return schedule.start * ops.ones_like(step)
    if schedule.type == "piecewise":
        found = schedule.values[0] * ops.ones_like(step)
        for boundary, x in zip(schedule.boundaries, schedule.values[1:], strict=True):
            found = ops.where(step < boundary, found, x)
        return found
    done = ops.minimum(step / schedule.over, 1.0)
    if schedule.type == "exponential":
        return schedule.start * (schedule.end / schedule.start) ** done
    if schedule.type == "cosine":
        done = 0.5 - 0.5 * ops.cos(done * math.pi)
    if schedule.type == "polynomial":
        done = 1.0 - (1.0 - done) ** schedule.power
    return schedule.start + (schedule.end - schedule.start) * done


class Current:
    """View of a config with every schedule evaluated."""

    def __init__(self, config: Any, time: Elapsed) -> None:
        self._config, self._time = config, time

    def __getattr__(self, name: str) -> Any:
        return value(getattr(self._config, name), self._time)


class Scheduled:
    """Mixin for objects with `steps`, `updates` and a `config` with schedules."""

    @property
    def time(self) -> Elapsed:
        """Arguments of the schedules."""
        return Elapsed(self.steps, self.updates)

    @property
    def now(self) -> Any:
        """View of the config with every schedule evaluated."""
        return Current(self.config, self.time)


class Held:
    """Current value of a schedule, for code that cannot see the step counter.

    Attributes:
      value: Number, or a variable for schedules.
    """

    def __init__(self, schedule: Any) -> None:
        self._schedule = self.value = schedule
        if isinstance(schedule, Schedule):
            import tensorflow as tf

            self.value = tf.Variable(value(schedule, Elapsed(0, 0)), trainable=False)

    def update(self, time: Any) -> None:
        """Assign the value at a time."""
        if self.value is not self._schedule:
            self.value.assign(value(self._schedule, time))
