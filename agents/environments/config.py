"""Descriptions of environments: kind, number and backend."""

import dataclasses
from typing import Annotated

from agents.environments import curriculum
from agents.tools import bounds, errors
from agents.tools import config as config_

BACKENDS = (
    *("auto", "serial", "process", "workers", "vector", "envpool", "mujoco"),
    "compiled",
)


WITHOUT_EFFECT = {
    "serial": ("num_workers",),
    "process": ("num_workers",),
    "vector": ("num_workers",),
    "envpool": ("wrappers",),
    "mujoco": ("wrappers",),
    "compiled": ("num_workers", "action_lag", "wrappers"),
}
"""Fields that a backend ignores; `auto` may choose a backend that uses them."""

FOLLOWING = ("auto", "serial", "process", "workers")
"""Backends whose environments can follow schedules."""


class BackendError(errors.Mistake):
    """Backend that cannot run an environment; the text names one that can."""


Timeout = Annotated[float, bounds.Bounds(0, 1_000_000, open=True)]
"""Seconds, at most as many as sockets and timers can handle."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """Description of environments: kind, number and backend."""

    id: str = ""
    """Registered Gymnasium id; `module:function` that returns an environment, possibly
    with the old Gym interface; or `module:Class` of a functional environment or robot.
    In Python, the function or class itself is allowed, too."""
    backend: str = "auto"
    """Backend that steps the environments. `workers`: several per process; `process`:
    one per process; `serial`: in this process, for cheap ones and for debugging;
    `vector`: vectorized by their own code; `envpool`: those of EnvPool; `compiled`:
    functional ones, in one program with the algorithm; `mujoco`: robots and Gymnasium's
    tasks of MuJoCo, in native threads; `auto`: vector for Atari, compiled and mujoco
    for environments that they run exactly, else workers."""
    num_agents: Annotated[int, bounds.Bounds(1, 1_000_000)] = 16
    """Environments that step as one batch, each a row of it."""
    num_workers: bounds.Size | None = None
    """Processes of the workers backend, or threads of envpool and mujoco; none for one
    per core."""
    max_length: bounds.Size | None = None
    """Steps after which to truncate episodes, in place of the limit of the id; none
    keeps that limit. For functions, the shorter of both limits applies."""
    action_lag: bool | None = None
    """Step the batch in two halves, one of which acts while the other steps;
    none does so for many agents in workers, where that is faster."""
    timeout: Timeout = 60.0
    """Seconds that a step or reset may take; unlimited in the trainer's process, where
    the backends serial, envpool, mujoco and compiled step."""
    start_timeout: Timeout = 120.0
    """Seconds that the construction of an environment may take."""
    kwargs: dict = dataclasses.field(default_factory=dict)
    """Arguments of the environment's constructor; numbers may be schedules over the
    environment steps of training, or `{type: uniform, low: 5, high: 15}`, see
    `curriculum.Curriculum`."""
    wrappers: list = dataclasses.field(default_factory=list)
    """Wrappers of each single environment, innermost first: `module:Class`, or a
    mapping of arguments with this as `type`."""
    action_mask: bool = False
    """Move `info["action_mask"]` into the observation for networks."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise config_.ConfigError(
                f"config key 'environment.backend' is {self.backend!r}; "
                + config_.did_you_mean(self.backend, BACKENDS)
            )
        bounds.require(self)
        bounds.require_effect(self)
        named = isinstance(self.id, str) and ":" not in self.id
        if named and "max_episode_steps" in self.kwargs:
            raise config_.ConfigError(
                "config key 'environment.max_length' sets the limit of episodes; use it "
                "in place of environment.kwargs.max_episode_steps."
            )
        for key in curriculum.schedules_of(self.kwargs):
            if self.backend not in FOLLOWING:
                raise config_.ConfigError(
                    f"config key 'environment.kwargs.{key}' is a schedule, which backend "
                    f"{self.backend} cannot follow; use workers, process or serial."
                )
        for declared in self.wrappers:
            wrapper = config_.declaration(declared, "an entry of environment.wrappers")
            if not isinstance(wrapper["type"], str) or ":" not in wrapper["type"]:
                raise config_.ConfigError(
                    "config key 'environment.wrappers' names wrappers by module:Class, "
                    f"got {wrapper['type']!r}."
                )

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        names = WITHOUT_EFFECT.get(self.backend, ())
        return dict.fromkeys(names, f"with backend {self.backend}")
