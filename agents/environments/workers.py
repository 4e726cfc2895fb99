"""Environments in worker processes that share memory with the caller.

Each worker owns a range of rows. All numbers travel through one block of anonymous
shared memory, so that a step costs one byte to wake each worker, and one as a reply:

    caller                                   worker
    actions to the block, one byte   ---->   steps its rows, results to the block
    copies the results out           <----   one byte

The block has no name in the file system: nothing is left of it, whatever happens.
"""

import collections
import contextlib
import functools
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.tools import batch_env, checks, external_process, processes

_ALIGNMENT = 64


class Workers(batch_env.Backend):
    """Batch of environments in worker processes; the info of a step is empty.

    Args:
      constructors: Functions without arguments that make one environment each; they
        are pickled by value where necessary, so lambdas are fine.
      num_workers: Number of processes; by default one per CPU of this process.
      timeout: Seconds that a step or reset of one worker may take; None waits forever.
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
        self._join(_Pool(constructors, num_workers, timeout, start_timeout, 1), 0)

    @classmethod
    def halves(cls, *args: Any, **kwargs: Any) -> list["Workers"]:
        """Two batches of equal size, made of the same arguments, with the same workers.

        While one batch steps, the other one may be sent its commands, so that workers
        need not wait for the caller.
        """
        pool = _Pool(*args, **kwargs, parts=2)
        batches = [cls.__new__(cls) for _ in pool.parts]
        for part, batch in enumerate(batches):
            batch._join(pool, part)
        return batches

    def _join(self, pool: "_Pool", part: int):
        """Become the batch of one part of a pool."""
        self._pool = pool
        self._part = part
        self.first_row = pool.parts[part].start
        self._owner = pool.owner[pool.parts[part]]
        super().__init__(*pool.spaces, pool.shared.arrays.part(pool.parts[part]))

    def __getitem__(self, index: int) -> external_process.Remote:
        return _Row(self._pool, range(len(self))[index] + self.first_row)

    def close(self):
        self._pool.close()

    def _start(self, restart: bool):
        self._pool.shared.restart[self._part] = restart
        self._pool.send(self._part, self._pool.members, processes.STEPS)

    def _finish(self, restart: bool) -> dict:
        self._pool.wait(self._part)
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        part, shared = self._pool.parts[self._part], self._pool.shared
        shared.begin[part] = False
        shared.begin[part.start + rows] = True
        shared.seed[part.start + rows] = -1 if seeds is None else seeds
        self._pool.send(self._part, np.unique(self._owner[rows]), processes.RESETS)
        self._pool.wait(self._part)


class _Pool:
    """Worker processes, and the memory they share with one or two batches.

    Attributes:
      parts: Rows of each batch.
      owner: Worker of each row, `[N]`.
      members: Numbers of all workers.
      spaces: Observation and action space of one environment.
    """

    def __init__(
        self,
        constructors: Sequence[Callable[[], Any]],
        num_workers: int | None = None,
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
        parts: int = 1,
    ):
        length = len(constructors)
        size, rest = divmod(length, parts)
        if rest:
            raise ValueError(f"Got {length} environments for two halves.")
        count = min(num_cpus() if num_workers is None else num_workers, size)
        if count < 1:
            raise ValueError(f"Got {num_workers} workers for {length} environments.")
        self.parts = [slice(x * size, (x + 1) * size) for x in range(parts)]
        self.members = range(count)
        bounds = np.linspace(0, size, count + 1).astype(int)
        self.owner = np.tile(np.repeat(self.members, np.diff(bounds)), parts)
        self._workers: list[processes.Worker] = []
        self._waiting = [collections.deque() for _ in self.members]
        self._closer = weakref.finalize(self, processes.close, self._workers)
        descriptor = _anonymous_file()
        try:
            progress = self._launch(constructors, descriptor)
            self.spaces = self._construct(progress, start_timeout)
            layout = (*self.spaces, length, count)
            self.shared = _Shared.map(descriptor, *layout)
            self.shared.current[:] = -1
            progress.current = self.shared.current[:, 0]
            for worker in self._workers:
                worker.set_timeout(timeout)
                worker.send(processes.START, (layout, self.parts))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def close(self):
        """End all processes."""
        self._closer()

    def send(self, part: int, members: Iterable[int], kinds: Sequence[bytes]):
        """Send a command about one of the batches to some workers."""
        self._require_open()
        try:
            for member in members:
                self._workers[member].send(kinds[part])
                self._waiting[member].append(part)
        except BaseException:
            self.close()
            raise

    def wait(self, part: int):
        """Wait until no worker has anything to do for one of the batches."""
        try:
            for member, waiting in enumerate(self._waiting):
                while part in waiting:
                    kind, value = self._workers[member].receive()
                    waiting.popleft()
                    if kind == processes.INVALID:
                        raise checks.EnvDataError(value)
        except BaseException:  # Replies could be left over, so this is the end.
            self.close()
            raise

    def request(self, row: int, kind: bytes, *request: Any) -> Any:
        """Answer of one environment to a request of `external_process.Remote`."""
        self._require_open()
        for part in range(len(self.parts)):
            self.wait(part)
        worker = self._workers[self.owner[row]]
        try:
            worker.send(kind, (*request, row))
            kind, value = worker.receive()
        except BaseException:
            self.close()
            raise
        if kind == processes.MISSING:
            raise AttributeError(value)
        return value

    def _require_open(self):
        if not self._closer.alive:
            raise RuntimeError("This batch of environments has been closed.")

    def _launch(self, constructors: Sequence, descriptor: int) -> "_Progress":
        """Start all workers without waiting for them."""
        rows = [np.flatnonzero(self.owner == x).tolist() for x in self.members]
        progress = _Progress(rows)
        for index, own in enumerate(rows):
            worker = processes.Worker(
                _serve,
                index,
                own,
                [constructors[row] for row in own],
                descriptor,
                name=functools.partial(progress.name, index),
                pass_fds=[descriptor],
            )
            self._workers.append(worker)
        return progress

    def _construct(self, progress: "_Progress", timeout: float | None) -> tuple:
        """Wait until all environments are constructed; return their spaces."""
        found = [None] * len(self.owner)
        for index, worker in enumerate(self._workers):
            worker.set_timeout(timeout)
            for row in progress.rows[index]:
                progress.current[index] = row
                worker.receive()
            progress.current[index] = -1
            for row, pair in zip(
                progress.rows[index], worker.receive()[1], strict=True
            ):
                found[row] = pair
        return checks.common_spaces(found)


class _Row(external_process.Remote):
    """One environment of a pool; requests are answered before they return."""

    def __init__(self, pool: _Pool, row: int):
        self._pool = pool
        self._row = row

    def _request(self, kind: bytes, *request: Any) -> Callable[[], Any]:
        result = self._pool.request(self._row, kind, *request)
        return lambda: result


class _Progress:
    """Which row each worker is busy with, for error messages."""

    def __init__(self, rows: list[list[int]]):
        self.rows = rows
        self.current = np.array([own[0] for own in rows])

    def name(self, index: int) -> str:
        """Beginning of an error message about a worker."""
        rows = self.rows[index]
        if self.current[index] in rows:
            return f"Environment row {self.current[index]}"
        if len(rows) == rows[-1] - rows[0] + 1:
            return f"Environment rows {rows[0]} to {rows[-1]}"
        return f"Environment rows {', '.join(map(str, rows))}"


class _Shared(NamedTuple):
    """The shared block: arrays of the batch and what only workers need."""

    arrays: batch_env.Arrays
    begin: np.ndarray  # bool [N], rows to reset.
    seed: np.ndarray  # int64 [N], negative for none.
    restart: np.ndarray  # bool [2], whether a step of a part restarts what ends.
    current: np.ndarray  # int64 [workers, 8], the row in progress, or -1, comes first.

    @classmethod
    def create(cls, allocate: Callable, *layout: Any) -> "_Shared":
        """All arrays, by `allocate(shape, dtype)`."""
        *spaces, length, workers = layout
        return cls(
            batch_env.Arrays.create(*spaces, length, allocate),
            allocate((length,), np.dtype(bool)),
            allocate((length,), np.dtype(np.int64)),
            allocate((2,), np.dtype(bool)),
            allocate((workers, 8), np.dtype(np.int64)),
        )

    @classmethod
    def map(cls, descriptor: int, *layout: Any) -> "_Shared":
        """Arrays in the memory of a file, the same for all who map it."""
        measure = _Allocator()
        cls.create(measure, *layout)
        os.ftruncate(descriptor, measure.size)
        return cls.create(_Allocator(mmap.mmap(descriptor, measure.size)), *layout)


class _Allocator:
    """Hands out arrays that lie in a buffer one after the other, or counts bytes."""

    def __init__(self, buffer: mmap.mmap | None = None):
        self.size = 0
        self._buffer = buffer

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
        start = self.size
        size = math.prod(shape) * dtype.itemsize
        self.size += _ALIGNMENT * math.ceil((size + 1) / _ALIGNMENT)
        if self._buffer is None:
            return None
        return np.ndarray(shape, dtype, self._buffer, start)


class _Rows:
    """Environments of one worker that belong to one batch, in its process.

    Results are collected in private arrays, and copied to the shared block at the end
    of a step: workers that wrote row by row to the same cache lines would wait for
    each other.
    """

    def __init__(
        self, worker: int, part: int, envs: dict[int, Any], shared: _Shared, spaces
    ):
        first = min(envs)
        rows = slice(first, first + len(envs))
        self._envs = list(enumerate(envs.values()))
        self._first = first
        self._shared = shared
        self._begin, self._seed = shared.begin[rows], shared.seed[rows]
        self._restart = shared.restart[part : part + 1]
        self._current = memoryview(shared.current[worker])
        self._current[0] = -1
        self._split = checks.splitter(spaces[1])
        shared = shared.arrays.part(rows)
        self._actions = shared.action
        own = batch_env.Arrays.create(*spaces, len(envs))
        self._flags = own.numbers[:, batch_env.TERMINATED : batch_env.TRUNCATED + 1]
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
        self._writer.steps(results)
        if self._restart[0] and self._flags.any():
            for row in np.flatnonzero(self._flags.any(1)).tolist():
                current[0] = first + row
                self._following.reset(row, self._envs[row][1].reset())
            for target, source in self._following_copies:
                target[...] = source
        self._publish()

    def reset(self):
        """Begin episodes where the block says so."""
        for row, env in self._envs:
            if self._begin[row]:
                self._current[0] = self._first + row
                seed = int(self._seed[row])
                self._writer.reset(row, env.reset(seed=None if seed < 0 else seed))
        self._publish()

    def _publish(self):
        """Make results visible to the caller."""
        for target, source in self._copies:
            target[...] = source
        self._current[0] = -1


def _serve(
    channel: processes.Channel,
    stack: contextlib.ExitStack,
    worker: int,
    rows: list[int],
    constructors: list[Callable[[], Any]],
    descriptor: int,
):
    """Main function of a worker process."""
    envs = {}
    for row, constructor in zip(rows, constructors, strict=True):
        envs[row] = constructor()
        stack.callback(envs[row].close)
        channel.send(processes.DONE)
    found = [(env.observation_space, env.action_space) for env in envs.values()]
    channel.send(processes.RESULT, found)
    layout, parts = channel.receive()[1]
    shared = _Shared.map(descriptor, *layout)
    os.close(descriptor)
    commands = {}
    for index, part in enumerate(parts):
        own = {row: envs[row] for row in rows if part.start <= row < part.stop}
        part = _Rows(worker, index, own, shared, layout[:2])
        commands[processes.STEPS[index]] = part.step
        commands[processes.RESETS[index]] = part.reset
    while True:
        kind, value = channel.receive()
        try:
            if kind in commands:
                commands[kind]()
            else:
                *request, row = value
                external_process.respond(channel, envs[row], kind, request)
                continue
            channel.send(processes.DONE)
        except checks.EnvDataError as error:
            channel.send(processes.INVALID, str(error))


def _anonymous_file() -> int:
    """Descriptor of an empty file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("agents")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def num_cpus() -> int:
    """Number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
