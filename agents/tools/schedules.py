"""Hyperparameters that change with the number of environment steps."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Value that moves from one number to another; in YAML and `--set`:

    `{type: linear, from: 3e-4, to: 0, over: 1e6}`. Types are `linear`, `cosine`,
    `exponential` (needs both ends positive) and `polynomial`, where the distance to the
    end falls with the `power` of the remaining steps. Afterwards the value stays.
    `{type: constant, from: 3e-4}` does not move.
    """

    type: str
    start: float
    end: float | None = None
    over: float | None = None
    """Environment steps until the end is reached."""
    power: float = 1.0

    KEYS = {
        "type": "type",
        "from": "start",
        "to": "end",
        "over": "over",
        "power": "power",
    }
    TYPES = ("constant", "linear", "polynomial", "cosine", "exponential")

    def __post_init__(self) -> None:
        if self.type not in self.TYPES:
            raise ValueError(f"Schedule type {self.type!r} is not one of {self.TYPES}.")
        if self.type != "polynomial" and self.power != 1.0:
            raise ValueError(f"Only a polynomial schedule has a power: {self}.")
        if self.type == "constant":
            if (self.end, self.over) != (None, None):
                raise ValueError(f"A constant schedule has no end: {self}.")
            return
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
        """Keys that a config file must hold for a type; `power` is optional."""
        moves = kind in cls.TYPES and kind != "constant"
        return ("type", "from") + (("to", "over") if moves else ())

    def to_dict(self) -> dict:
        """The form it has in a config file."""
        keys = [*self.needed(self.type)]
        if self.type == "polynomial":
            keys.append("power")
        return {key: getattr(self, self.KEYS[key]) for key in keys}


def value(schedule: "float | Schedule", step):
    """Value at an environment step, a float32 tensor (or float for a number)."""
    if not isinstance(schedule, Schedule):
        return schedule
    import tensorflow as tf

    if schedule.type == "constant":
        return tf.constant(schedule.start, tf.float32)
    done = tf.minimum(tf.cast(step, tf.float32) / schedule.over, 1.0)
    if schedule.type == "exponential":
        return schedule.start * tf.pow(schedule.end / schedule.start, done)
    if schedule.type == "cosine":
        done = 0.5 - 0.5 * tf.cos(done * 3.141592653589793)
    if schedule.type == "polynomial":
        done = 1.0 - tf.pow(1.0 - done, schedule.power)
    return schedule.start + (schedule.end - schedule.start) * done
