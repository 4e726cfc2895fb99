"""Environments in worker processes, several in each, one per row."""

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.environments import pool
from agents.tools import actions, channels, checks, processes, transitions
from agents.tools import spaces as spaces_


class Workers(pool.PoolRows):
    """Batch of environments in worker processes; the info of a step is empty.

    Args:
      constructors: Functions without arguments that create one environment each; they
        are pickled by value if necessary, so lambdas are allowed.
      num_workers: Number of processes; by default one per CPU of this process.
      timeout: Seconds that a step or reset of one environment may take; None for no
        limit.
      start_timeout: Seconds that the construction of one environment may take.

    Raises:
      ValueError: if the spaces of the environments differ.
      processes.EnvProcessError: if an environment process fails.
    """

    def __init__(
        self,
        constructors: Sequence[Callable[[], Any]],
        num_workers: int | None = None,
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
    ):
        super().__init__(_launch(constructors, num_workers, timeout, start_timeout, 1))

    @classmethod
    def halves(
        cls,
        constructors: Sequence[Callable[[], Any]],
        num_workers: int | None = None,
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
    ) -> list[pool.PoolRows]:
        """Create two batches of equal size that share their workers.

        While one batch steps, the other one may get its commands, so that workers need
        not wait for the caller. The arguments are those of the class.
        """
        shared = _launch(constructors, num_workers, timeout, start_timeout, 2)
        return [pool.PoolRows(shared, part) for part in range(2)]


def _launch(
    constructors: Sequence[Callable[[], Any]],
    num_workers: int | None,
    timeout: float | None,
    start_timeout: float | None,
    parts: int,
) -> pool.Pool:
    """Create a pool in which every worker owns a range of rows of each part."""
    size, rest = divmod(len(constructors), parts)
    if rest:
        raise ValueError(f"Got {len(constructors)} environments for two halves.")
    count = min(num_cpus() if num_workers is None else num_workers, size)
    if count < 1:
        raise ValueError(
            f"Got {num_workers} workers for {len(constructors)} environments."
        )
    bounds = np.linspace(0, size, count + 1).astype(int)
    owner = np.tile(np.repeat(np.arange(count), np.diff(bounds)), parts)
    tasks = [
        [constructors[row] for row in np.flatnonzero(owner == x)] for x in range(count)
    ]
    return pool.Pool(
        _serve, tasks, owner, parts, timeout, start_timeout, processes.SMALL
    )


class _Rows:
    """Environments of one worker that belong to one batch, in its process.

    Results are collected in private arrays and copied to the shared block at the end of
    a step, because workers that write single rows to the same cache lines would wait
    for each other.
    """

    def __init__(
        self, worker: int, part: int, envs: dict[int, Any], shared: pool.Shared, spaces
    ):
        first = min(envs)
        rows = slice(first, first + len(envs))
        self._envs = list(enumerate(envs.values()))
        self._first = first
        self._begin, self._seed = shared.begin[rows], shared.seed[rows]
        self._restart = shared.restart[part : part + 1]
        self._current = memoryview(shared.current[worker])
        self._current[0] = -1
        self._split = actions.splitter(spaces[1])
        self._apart: bool | None = None
        """True if rows share no arrays of observations; unknown before a step."""
        shared = shared.buffers.part(rows)
        self._actions = shared.action
        own = transitions.Buffers.create(*spaces, len(envs))
        self._flags = own.numbers[:, transitions.FLAGS]
        self._writer, self._following = own.writers(spaces[0], first)
        theirs, ours = ((x.numbers, *x.others()[0]) for x in (shared, own))
        self._copies = list(zip(theirs, ours, strict=True))
        theirs, ours = (x.others()[1] for x in (shared, own))
        self._following_copies = list(zip(theirs, ours, strict=True))

    def step(self):
        """Apply the actions of the block."""
        current, first, results = self._current, self._first, []
        actions = self._split(self._actions)
        for (row, env), action in zip(self._envs, actions, strict=True):
            current[0] = first + row
            results.append(env.step(action))
            if not self._apart:
                self._writer.step(row, results[-1])
        if self._apart:
            self._writer.steps(results)
        elif self._apart is None:  # Once is enough, and the check takes time.
            self._apart = _are_apart(results)
        if self._restart[0] and self._flags.any():
            for row in np.flatnonzero(self._flags.any(1)).tolist():
                current[0] = first + row
                self._following.reset(row, self._envs[row][1].reset())
            for target, source in self._following_copies:
                target[...] = source
        self._publish()

    def reset(self):
        """Begin episodes in the rows that the block marks."""
        for row, env in self._envs:
            if self._begin[row]:
                self._current[0] = self._first + row
                seed = int(self._seed[row])
                self._writer.reset(row, env.reset(seed=None if seed < 0 else seed))
        self._publish()

    def _publish(self):
        """Copy results to the shared block."""
        for target, source in self._copies:
            target[...] = source
        self._current[0] = -1


def _are_apart(results: list[tuple]) -> bool:
    """Return whether observations of different rows are in different places."""
    leaves = itertools.chain(*(spaces_.flatten(result[0]) for result in results))
    places = [
        x.__array_interface__["data"][0]
        for x in leaves
        if isinstance(x, np.ndarray) and x.size
    ]
    return len(set(places)) == len(places)


def _serve(
    channel: channels.Channel,
    stack: contextlib.ExitStack,
    worker: int,
    rows: list[int],
    constructors: list[Callable[[], Any]],
    descriptor: int,
):
    """Serve environments in a worker process."""
    envs = {}
    for row, constructor in zip(rows, constructors, strict=True):
        channel.send(channels.DONE)
        envs[row] = constructor()
        stack.callback(envs[row].close)
    try:
        checks.require_apart([*envs.values()], rows[0])
    except checks.EnvDataError as error:
        channel.send(channels.INVALID, error)
        return
    found = [(env.observation_space, env.action_space) for env in envs.values()]
    channel.send(channels.RESULT, (found, None))

    def create(shared, part, own, spaces):
        return _Rows(worker, part, {row: envs[row] for row in own}, shared, spaces)

    pool.obey(channel, worker, rows, descriptor, create, envs.__getitem__)


def num_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
