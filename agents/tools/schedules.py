"""Hyperparameters that change with the number of environment steps."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Value that moves from one number to another; in YAML and `--set`:

    `{type: linear, from: 3e-4, to: 0, over: 1e6}`. Types are `linear`, `cosine` and
    `exponential` (needs both ends positive). Afterwards the value stays.
    """

    type: str
    start: float
    end: float
    over: float
    """Environment steps until the end is reached."""

    KEYS = {"type": "type", "from": "start", "to": "end", "over": "over"}
    TYPES = ("linear", "cosine", "exponential")

    def __post_init__(self) -> None:
        if self.type not in self.TYPES:
            raise ValueError(f"Schedule type {self.type!r} is not one of {self.TYPES}.")
        if self.over <= 0:
            raise ValueError(f"A schedule takes a positive number of steps: {self}.")
        if self.type == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError(f"An exponential schedule needs positive ends: {self}.")

    def to_dict(self) -> dict:
        """The form it has in a config file."""
        return {key: getattr(self, field) for key, field in self.KEYS.items()}


def value(schedule: "float | Schedule", step):
    """Value at an environment step, a float32 tensor (or float for a constant)."""
    if not isinstance(schedule, Schedule):
        return schedule
    import tensorflow as tf

    done = tf.minimum(tf.cast(step, tf.float32) / schedule.over, 1.0)
    if schedule.type == "exponential":
        return schedule.start * tf.pow(schedule.end / schedule.start, done)
    if schedule.type == "cosine":
        done = 0.5 - 0.5 * tf.cos(done * 3.141592653589793)
    return schedule.start + (schedule.end - schedule.start) * done
