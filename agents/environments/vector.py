"""Environments that are vectorized already, by the interface of Gymnasium."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.tools import batch_env, checks, spaces


class Vector(batch_env.Backend):
    """Batch that is one `gymnasium.vector.VectorEnv`, in any autoreset mode.

    Environments that reset themselves at the end of an episode (`SAME_STEP`) must give
    the true last observation as `info["final_obs"]`. All others are reset here, by
    `reset(options={"reset_mask": ...})`, before they could reset themselves or an
    action be ignored.

    Args:
      env: The vector environment.
      max_length: Steps after which to truncate episodes, besides its own limit.
      first_row: What errors add to rows, where this is a part of a larger batch.

    Raises:
      EnvDataError: if what it returns does not fit its spaces, or it resets rows
        that it was not asked to.
    """

    def __init__(
        self, env: VectorEnv, max_length: int | None = None, first_row: int = 0
    ):
        self.first_row = first_row
        self._env = env
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._same_step = AutoresetMode(mode) == AutoresetMode.SAME_STEP
        self._max_length = max_length
        found = env.single_observation_space, env.single_action_space
        arrays = batch_env.Arrays.create(*found, env.num_envs)
        super().__init__(*found, arrays)
        self._elapsed = np.zeros(len(self), np.int64)
        self._begun = np.zeros(len(self), bool)  # What `following` is in use for.

    @property
    def max_length(self) -> int | None:
        """Steps after which its own limit truncates episodes, if that is known."""
        spec = getattr(self._env, "spec", None)
        return getattr(spec, "max_episode_steps", None)

    def __getitem__(self, index: int) -> Any:
        """The vector environment, or the environment of the row if it has such."""
        envs = getattr(self._env, "envs", None)
        return envs[index] if envs else self._env

    def close(self):
        self._env.close()

    def _start(self, restart: bool):
        self._pending = self._actions()
        if hasattr(self._env, "step_async"):
            self._env.step_async(self._pending)

    def _finish(self, restart: bool) -> dict:
        if hasattr(self._env, "step_async"):
            results = self._env.step_wait()
        else:
            results = self._env.step(self._pending)
        observation, reward, terminated, truncated, info = results
        self._elapsed += 1
        numbers = self._arrays.numbers
        numbers[:, batch_env.REWARD] = reward
        numbers[:, batch_env.TERMINATED] = terminated
        numbers[:, batch_env.TRUNCATED] = truncated
        done = np.asarray(terminated) | truncated
        began = done & self._same_step
        if self._max_length is not None:
            late = self._elapsed >= self._max_length
            numbers[late, batch_env.TRUNCATED] = 1
            done = done | late
        self._write(self._arrays.observation, observation)
        if began.any():
            self._write(self._arrays.following, observation, began)
            self._write_last(began, info)
        self._begun = began
        self._elapsed[done] = 0
        if restart and (done & ~began).any():
            observation = self._reset_rows(done & ~began)
            self._write(self._arrays.following, observation, done & ~began)
        if restart:
            self._begun = np.zeros(len(self), bool)
        return info

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        mask = np.zeros(len(self), bool)
        mask[rows] = True
        if seeds is None:
            ready = mask & self._begun
            for leaf, new in zip(
                self._arrays.observation, self._arrays.following, strict=True
            ):
                leaf[ready] = new[ready]
            mask &= ~ready
        if mask.any():
            order = None if seeds is None else dict(zip(rows, seeds, strict=True))
            observation = self._reset_rows(mask, order)
            self._write(self._arrays.observation, observation, mask)
        self._begun[rows] = False
        self._elapsed[rows] = 0

    def _reset_rows(self, mask: np.ndarray, seeds: dict | None = None) -> Any:
        """Reset where the mask says so; returns observations of all rows."""
        everything = mask.all()
        options = None if everything else {"reset_mask": mask}
        observation, _ = self._env.reset(seed=self._seeds(mask, seeds), options=options)
        if not everything:
            others = ~mask & ~self._begun
            leaves = self._leaves(observation)
            for leaf, kept in zip(leaves, self._arrays.observation, strict=True):
                changed = leaf[others].astype(kept.dtype) != kept[others]
                if changed.any():
                    raise batch_env.EnvDataError(
                        f"{type(self._env.unwrapped).__name__} does not obey reset_mask"
                        "; use its autoreset mode SAME_STEP, vectorization_mode sync "
                        "among the kwargs, or backend workers."
                    )
        return observation

    def _seeds(self, mask: np.ndarray, seeds: dict | None) -> Any:
        """Seeds in the form that the environment wants."""
        if seeds is None:
            return None
        if type(self._env.unwrapped).__module__.startswith("ale_py"):
            return np.array([seeds[row] for row in np.flatnonzero(mask)])
        if not hasattr(self._env.unwrapped, "envs") and not hasattr(
            self._env.unwrapped, "processes"
        ):
            return int(min(seeds.values()))  # One generator for all rows.
        return [
            int(seeds[row]) if selected else None for row, selected in enumerate(mask)
        ]

    def _write(
        self,
        targets: list[np.ndarray],
        observation: Any,
        mask: np.ndarray | None = None,
    ):
        """Copy an observation of all rows, or the rows of a mask, to leaves."""
        for target, leaf in zip(targets, self._leaves(observation), strict=True):
            if mask is None:
                target[...] = leaf
            else:
                target[mask] = leaf[mask]

    def _write_last(self, rows: np.ndarray, info: dict):
        """Replace the observations of rows that began by their true last ones."""
        if "final_obs" not in info:
            raise batch_env.EnvDataError(
                f"{type(self._env.unwrapped).__name__} resets in the same step but "
                "gives no info['final_obs']; use another autoreset mode."
            )
        final = info["final_obs"]
        for row in np.flatnonzero(rows):
            one = final[row] if isinstance(final, np.ndarray) else final
            pairs = zip(self._arrays.observation, spaces.flatten(one), strict=True)
            for leaf, value in pairs:
                leaf[row] = value if one is not final else value[row]

    def _leaves(self, observation: Any) -> list[np.ndarray]:
        """Leaves of an observation of all rows, checked."""
        leaves = spaces.flatten(observation)
        for name, leaf, spec in zip(self._names, leaves, self._specs, strict=True):
            if not isinstance(leaf, np.ndarray) or leaf.shape[1:] != spec.shape:
                raise batch_env.EnvDataError(
                    f"The vector environment declares {name} of {spec.dtype} "
                    f"{list(spec.shape)} per row, but gives {checks.summary(leaf)}."
                )
            checks.require_dtype(name, leaf, spec.dtype)
        return leaves


def make(
    id: str | Callable[..., VectorEnv], num_envs: int, kwargs: dict[str, Any]
) -> VectorEnv:
    """Vector environment of a registered id, or by a function of `num_envs`."""
    if callable(id):
        return id(num_envs=num_envs, **kwargs)
    return gymnasium.make_vec(id, num_envs=num_envs, **kwargs)
