"""Vector environments of registered ids and functions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import vector
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.environments.mujoco import enums
from agents.tools import spaces

MODE = "vectorization_mode"
"""Argument of `gymnasium.make_vec` that selects the vectorizing code."""


@dataclasses.dataclass(frozen=True)
class VectorConstructor:
    """Picklable function of `num_envs` that creates a vector environment.

    If the vectorizing code of a registered environment cannot reset single rows,
    Gymnasium vectorizes the environment instead, stepping one row after another.

    Attributes:
      id: Specification in the registry, or a function.
      kwargs: Arguments of the environment, or of the function.
      wrappers: Functions that wrap each single environment; then Gymnasium vectorizes.
    """

    id: registration.EnvSpec | Callable[..., Any]
    kwargs: dict[str, Any]
    wrappers: Sequence[Callable] = ()

    def __call__(self, num_envs: int) -> VectorEnv:
        if callable(self.id):
            return self.id(num_envs=num_envs, **self.kwargs)
        if "gymnasium_robotics" in str(self.id.entry_point):
            enums.repair()
        if self.wrappers:
            options = {MODE: "sync", **self.kwargs, "wrappers": self.wrappers}
            return gymnasium.make_vec(self.id, num_envs=num_envs, **options)
        env = gymnasium.make_vec(self.id, num_envs=num_envs, **self.kwargs)
        if not self._has_choice or num_envs == 1 or obeys_mask(env):
            return env
        env.close()
        return gymnasium.make_vec(
            self.id, num_envs=num_envs, **{MODE: "sync"}, **self.kwargs
        )

    def says(self, mode: str | None) -> str | None:
        """Explain the mode of an environment that was made, if it is a substitute."""
        if callable(self.id) or not self._has_choice or mode != "sync":
            return None
        return (
            f"The vector environment of {self.id.id} does not obey reset_mask, so "
            f"Gymnasium steps single ones in turn ({MODE} sync); backend workers uses "
            "all processors."
        )

    @property
    def _has_choice(self) -> bool:
        """Return whether there is both vectorizing code and a single environment."""
        if self.wrappers:
            return False
        entries = self.id.vector_entry_point, self.id.entry_point
        return all(entries) and MODE not in {**self.id.kwargs, **self.kwargs}


def mode(env: Any) -> str | None:
    """Return an environment's vectorization mode, if `gymnasium.make_vec` made it."""
    spec = getattr(getattr(env, "unwrapped", env), "spec", None)
    return getattr(spec, "kwargs", {}).get(MODE)


def obeys_mask(env: VectorEnv) -> bool:
    """Return whether a reset of the first row leaves the others where they are.

    These are not at their start then, but one step after it. Environments that reset
    themselves at the end of a step need not obey.
    """
    given = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if AutoresetMode(given) == AutoresetMode.SAME_STEP:
        return True
    actions = vector.utils.batch_space(env.single_action_space, env.num_envs)
    actions.seed(0)
    env.reset(seed=0)
    before = _others(env.step(actions.sample())[0])
    mask = np.arange(env.num_envs) == 0
    after = _others(env.reset(options={"reset_mask": mask})[0])
    env.reset(seed=int(np.random.SeedSequence().generate_state(1)[0] >> 1))
    return all(map(np.array_equal, before, after))


def _others(observation: Any) -> list[np.ndarray]:
    """Copy the leaves of all rows but the first."""
    return [np.array(leaf)[1:] for leaf in spaces.flatten(observation)]
