"""Environments that are already vectorized, with the interface of Gymnasium."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.environments import checked, pool, vectorization
from agents.tools import (
    actions,
    batch_env,
    channels,
    checks,
    errors,
    spaces,
    transitions,
)

FINALS = 16
"""Number of ends of episodes that show whether last observations are overwritten."""


class NotVectorized(errors.Mistake):
    """Object that is not a `gymnasium.vector.VectorEnv`."""


class Vector(pool.PoolRows):
    """Batch of one `gymnasium.vector.VectorEnv`, in any autoreset mode.

    It runs in a separate process, like workers, with the same time limits. Processes
    that it starts end with it. The info of a step is empty.

    Environments that reset themselves at the end of an episode (`SAME_STEP`) must
    return the true last observation as `info["final_obs"]`. All others are reset here,
    by `reset(options={"reset_mask": ...})`, before they could reset themselves or
    ignore an action.

    Args:
      constructor: Function of `num_envs` that creates the vector environment; it is
        pickled by value if necessary.
      num_envs: Number of rows.
      max_length: Steps after which to truncate episodes, in addition to its own limit.
      timeout: Seconds that a step or reset may take; None waits forever.
      start_timeout: Seconds that the construction may take.

    Raises:
      NotVectorized: if the constructor makes something else.
      processes.EnvError: if it fails.
      EnvDataError: if results do not fit its spaces, or it resets rows unasked.
    """

    def __init__(
        self,
        constructor: Callable[..., VectorEnv],
        num_envs: int,
        max_length: int | None = None,
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
    ):
        task = constructor, max_length
        super().__init__(_launch(task, num_envs, 1, timeout, start_timeout))

    @classmethod
    def halves(
        cls,
        constructor: Callable[..., VectorEnv],
        num_envs: int,
        max_length: int | None = None,
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
    ) -> list[pool.PoolRows]:
        """Create two batches with half of the rows each, in separate processes."""
        task = constructor, max_length
        shared = _launch(task, num_envs, 2, timeout, start_timeout)
        return [pool.PoolRows(shared, part) for part in range(2)]

    @property
    def max_length(self) -> int | None:
        """Steps after which its own limit truncates episodes, if known."""
        return self.besides[0][0]


def _launch(
    task: tuple,
    num_envs: int,
    parts: int,
    timeout: float | None,
    start_timeout: float | None,
) -> pool.Pool:
    """Create a pool with a worker per part, which may use all threads and devices."""
    owner = np.repeat(np.arange(parts), num_envs // parts)
    return pool.Pool(_serve, [task] * parts, owner, parts, timeout, start_timeout, {})


def _serve(
    channel: channels.Channel,
    stack: contextlib.ExitStack,
    worker: int,
    rows: list[int],
    task: tuple,
    descriptor: int,
):
    """Serve a vector environment in its process."""
    constructor, max_length = task
    checked.prepare(rows[0])
    with checked.blaming(rows[0], "start"):
        env = constructor(num_envs=len(rows))
    stack.callback(env.close)
    if not isinstance(env, VectorEnv):
        text = f"expected a gymnasium.vector.VectorEnv, got {type(env).__name__}"
        channel.send(channels.INVALID, NotVectorized(text))
        return
    checked.wrap(env, rows[0])
    spec = getattr(env, "spec", None)
    limit = getattr(spec, "max_episode_steps", None)
    limit = getattr(spec, "kwargs", {}).get("max_episode_steps", limit)
    found = env.single_observation_space, env.single_action_space
    facts = limit, vectorization.mode(env)
    channel.send(channels.RESULT, ([found] * len(rows), facts))

    def create(shared, part, own, _):
        return _Whole(env, max_length, shared, worker, part, own)

    def one(row):
        envs = getattr(env, "envs", None)
        return envs[row - rows[0]] if envs else env

    pool.obey(channel, worker, rows, descriptor, create, one)


class _Whole:
    """All rows of a vector environment, in its process."""

    def __init__(
        self,
        env: VectorEnv,
        max_length: int | None,
        shared: pool.Shared,
        worker: int,
        part: int,
        rows: list[int],
    ):
        own = slice(rows[0], rows[-1] + 1)
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._same_step = AutoresetMode(mode) == AutoresetMode.SAME_STEP
        self._env, self._max_length, self._first_row = env, max_length, rows[0]
        self._name = type(env.unwrapped).__name__
        self._action_space = env.single_action_space
        self._leaves = checks.leaves("observation", env.single_observation_space)
        self._begin, self._seed = shared.begin[own], shared.seed[own]
        self._restart = shared.restart[part : part + 1]
        self._current = memoryview(shared.current[worker])
        checked.tell(env, self._current)
        self._buffers = shared.buffers.part(own)
        self._writer, _ = self._buffers.writers(env.single_observation_space, rows[0])
        self._elapsed = np.zeros(len(rows), np.int64)
        self._begun = np.zeros(len(rows), bool)  # Rows whose `following` is in use.
        self._restarted = self._begun.copy()  # Rows that began in a step that restarts.
        self._finals = 0  # Last observations equal to firsts:
        self._firsts: set[bytes] | None = set()

    def step(self):
        """Apply the actions of the block."""
        typed = actions.typed(self._action_space, self._buffers.action)
        with checked.blaming(self._first_row, "step"):
            results = self._env.step(typed)
        self._current[0] = -1
        if not (isinstance(results, tuple) and len(results) == 5):
            raise checks.EnvDataError(
                f"{self._name}.step must return observation, reward, terminated, "
                f"truncated, info; got {checks.summary(results)}."
            )
        observation, reward, terminated, truncated, info = results
        self._elapsed += 1
        done = self._write_numbers(reward, terminated, truncated)
        began = done & self._same_step
        if self._max_length is not None:
            late = self._elapsed >= self._max_length
            self._buffers.numbers[late, transitions.TRUNCATED] = 1
            done = done | late
        self._write(self._buffers.observation, observation)
        if began.any():
            self._write(self._buffers.following, observation, began)
            self._write_last(began, info)
        self._begun, self._restarted = began, np.zeros(len(began), bool)
        self._elapsed[done] = 0
        if self._restart[0]:
            if (done & ~began).any():
                observation = self._reset_rows(done & ~began)
                self._write(self._buffers.following, observation, done & ~began)
            self._begun, self._restarted = self._restarted, done.copy()

    def reset(self):
        """Begin episodes in the rows that the block marks."""
        mask, seeds = self._begin.copy(), None
        if (self._seed[mask] >= 0).any():
            seeds = {int(x): int(self._seed[x]) for x in np.flatnonzero(mask)}
        else:
            ready = mask & self._begun
            for leaf, new in zip(
                self._buffers.observation, self._buffers.following, strict=True
            ):
                leaf[ready] = new[ready]
            mask &= ~ready
        if mask.any():
            observation = self._reset_rows(mask, seeds)
            self._write(self._buffers.observation, observation, mask)
        self._begun[self._begin] = self._restarted[self._begin] = False
        self._elapsed[self._begin] = 0

    def _reset_rows(self, mask: np.ndarray, seeds: dict | None = None) -> Any:
        """Reset the rows of the mask; return observations of all rows."""
        everything = mask.all()
        options = None if everything else {"reset_mask": mask}
        with checked.blaming(self._first_row, "reset"):
            seed = self._seeds(mask, seeds)
            result = self._env.reset(seed=seed, options=options)
        self._current[0] = -1
        if not (isinstance(result, tuple) and len(result) == 2):
            raise checks.EnvDataError(
                f"{self._name}.reset must return observation, info; got "
                f"{checks.summary(result)}."
            )
        observation, _ = result
        if not everything:
            others = ~mask & ~self._begun
            leaves = self._fitting(observation)
            restarted = self._restarted[others]
            for leaf, last, first in zip(
                leaves, self._buffers.observation, self._buffers.following, strict=True
            ):
                kept, new = last[others], leaf[others].astype(last.dtype)
                kept[restarted] = first[others][restarted]
                # The next step names NaN.
                if not np.array_equal(new, kept, equal_nan=True):
                    advice = (
                        "leave out environment.max_length, or use"
                        if self._same_step
                        else "use its autoreset mode SAME_STEP, vectorization_mode sync "
                        "among the kwargs, or"
                    )
                    raise batch_env.EnvDataError(
                        f"{self._name} does not obey reset_mask; {advice} backend "
                        "workers."
                    )
        return observation

    def _seeds(self, mask: np.ndarray, seeds: dict | None) -> Any:
        """Return seeds in the form that the environment expects."""
        if seeds is None:
            return None
        inner = self._env.unwrapped
        if type(inner).__module__.startswith("ale_py"):
            return np.array([seeds[row] for row in np.flatnonzero(mask)])
        if not hasattr(inner, "envs") and not hasattr(inner, "processes"):
            return int(min(seeds.values()))  # One generator for all rows.
        return [
            int(seeds[row]) if selected else None for row, selected in enumerate(mask)
        ]

    def _write_numbers(self, reward: Any, terminated: Any, truncated: Any) -> Any:
        """Store reward and flags of a step; return the done rows, bool `[N]`."""
        numbers, first = self._buffers.numbers, self._first_row
        given = {"reward": reward, "terminated": terminated, "truncated": truncated}
        for index, (name, values) in enumerate(given.items(), transitions.REWARD):
            numbers[:, index] = checks.column(name, values, len(numbers), first)
        return numbers[:, transitions.FLAGS].any(1)

    def _write(
        self,
        targets: list[np.ndarray],
        observation: Any,
        mask: np.ndarray | None = None,
    ):
        """Copy an observation of all rows, or the rows of a mask, to leaves."""
        for target, leaf in zip(targets, self._fitting(observation), strict=True):
            if mask is None:
                target[...] = leaf
            else:
                target[mask] = leaf[mask]

    def _write_last(self, rows: np.ndarray, info: dict):
        """Write the true last observations of rows that began an episode."""
        if "final_obs" not in info:
            raise batch_env.EnvDataError(
                f"{self._name} resets in the same step but gives no info['final_obs']; "
                "use another autoreset mode."
            )
        final = info["final_obs"]
        for row in np.flatnonzero(rows).tolist():
            if isinstance(final, np.ndarray):
                one = final[row]
            else:
                one = spaces.transform(lambda x, row=row: x[row], final)
            self._writer.reset(row, (one, {}))
            self._suspect(row)

    def _suspect(self, row: int):
        """Raise EnvDataError once last observations are certainly overwritten.

        Environments that always return the same array change it when they reset, before
        it has been read.
        """
        if self._firsts is None:
            return
        pairs = zip(self._buffers.observation, self._buffers.following, strict=True)
        leaves = [(last[row], first[row]) for last, first in pairs]
        if not all(np.array_equal(last, first) for last, first in leaves):
            self._firsts = None
            return
        self._firsts.add(b"".join(first.tobytes() for _, first in leaves))
        self._finals += 1
        if self._finals >= FINALS and len(self._firsts) > 1:
            raise batch_env.EnvDataError(
                f"{self._name} gives the first observation of the next episode as "
                f"info['final_obs'], in all of {self._finals} episodes. Let its "
                "environments return new arrays, or use another autoreset mode."
            )

    def _fitting(self, observation: Any) -> list[np.ndarray]:
        """Return checked leaves of an observation of all rows."""
        length, leaves = len(self._begun), []
        for name, path, spec in self._leaves:
            leaf = checks.lookup(checks.EnvDataError, None, name, observation, path)
            if not isinstance(leaf, np.ndarray) or leaf.shape != (length, *spec.shape):
                raise batch_env.EnvDataError(
                    f"The vector environment declares {name} of {spec.dtype} "
                    f"{list(spec.shape)} per row, but gives {checks.summary(leaf)}."
                )
            checks.require_dtype(name, leaf, spec.dtype)
            leaves.append(leaf)
        return leaves
