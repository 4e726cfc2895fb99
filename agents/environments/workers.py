"""Environments in worker processes that share memory with the caller.

Each worker owns a range of rows. All numbers travel through one block of anonymous
shared memory, so that a step costs one byte to wake each worker, and one as a reply:

    caller                                   worker
    actions to the block, one byte   ---->   steps its rows, results to the block
    copies the results out           <----   one byte

The block has no name in the file system: nothing is left of it, whatever happens.
"""

import contextlib
import functools
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
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
        length = len(constructors)
        count = min(_num_cpus() if num_workers is None else num_workers, length)
        if count < 1:
            raise ValueError(f"Got {num_workers} workers for {length} environments.")
        bounds = np.linspace(0, length, count + 1).astype(int)
        self._owner = np.repeat(np.arange(count), np.diff(bounds))
        self._workers: list[processes.Worker] = []
        self._closer = weakref.finalize(self, processes.close, self._workers)
        descriptor = _anonymous_file()
        try:
            progress = self._launch(constructors, bounds.tolist(), descriptor)
            found = self._construct(progress, start_timeout)
            self._shared = _Shared.map(descriptor, *found, length, count)
            progress.current = self._shared.current[:, 0]
            super().__init__(*found, self._shared.arrays)
            for worker in self._workers:
                worker.set_timeout(timeout)
                worker.send(processes.START, (*found, length, count))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def __getitem__(self, index: int) -> external_process.Remote:
        return _Row(self, range(len(self))[index])

    def close(self):
        self._closer()

    def request(self, row: int, kind: bytes, *request: Any) -> Any:
        """Answer of one environment to a request of `external_process.Remote`."""
        ((kind, value),) = self._exchange([self._owner[row]], kind, (*request, row))
        if kind == processes.MISSING:
            raise AttributeError(value)
        return value

    def _launch(
        self, constructors: Sequence, bounds: list[int], descriptor: int
    ) -> "_Progress":
        """Start all workers without waiting for them."""
        progress = _Progress(bounds)
        for index, first in enumerate(bounds[:-1]):
            worker = processes.Worker(
                _serve,
                index,
                first,
                list(constructors[first : bounds[index + 1]]),
                descriptor,
                name=functools.partial(progress.name, index),
                pass_fds=[descriptor],
            )
            self._workers.append(worker)
        return progress

    def _construct(self, progress: "_Progress", timeout: float | None) -> tuple:
        """Wait until all environments are constructed; return their spaces."""
        found = []
        for index, worker in enumerate(self._workers):
            worker.set_timeout(timeout)
            for _ in range(*progress.bounds[index : index + 2]):
                worker.receive()
                progress.current[index] += 1
            found += worker.receive()[1]
        return checks.common_spaces(found)

    def _step(self) -> dict:
        self._exchange(range(len(self._workers)), processes.STEP)
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        self._shared.restart[:] = False
        self._shared.restart[rows] = True
        self._shared.seed[rows] = -1 if seeds is None else seeds
        self._exchange(np.unique(self._owner[rows]), processes.RESET)

    def _exchange(
        self, indices: Sequence[int], kind: bytes, value: Any = None
    ) -> list[tuple[bytes, Any]]:
        """Send a command to some workers and wait for their replies."""
        if not self._closer.alive:
            raise RuntimeError("This batch of environments has been closed.")
        try:
            for index in indices:
                self._workers[index].send(kind, value)
            replies = [self._workers[index].receive() for index in indices]
            for kind, value in replies:
                if kind == processes.INVALID:
                    raise checks.EnvDataError(value)
        except BaseException:  # Replies could be left over, so this is the end.
            self.close()
            raise
        return replies


class _Row(external_process.Remote):
    """One environment of `Workers`; requests are answered before they return."""

    def __init__(self, batch: Workers, row: int):
        self._batch = batch
        self._row = row

    def _request(self, kind: bytes, *request: Any) -> Callable[[], Any]:
        result = self._batch.request(self._row, kind, *request)
        return lambda: result


class _Progress:
    """Which row each worker is busy with, for error messages."""

    def __init__(self, bounds: list[int]):
        self.bounds = bounds
        self.current = np.array(bounds[:-1])

    def name(self, index: int) -> str:
        """Beginning of an error message about a worker."""
        first, last = self.bounds[index], self.bounds[index + 1] - 1
        if first <= self.current[index] <= last:
            return f"Environment row {self.current[index]}"
        return f"Environment rows {first} to {last}"


class _Shared(NamedTuple):
    """The shared block: arrays of the batch and what only workers need."""

    arrays: batch_env.Arrays
    restart: np.ndarray  # bool [N], rows to reset.
    seed: np.ndarray  # int64 [N], negative for none.
    current: np.ndarray  # int64 [workers, 8], the row in progress, or -1, comes first.

    @classmethod
    def create(cls, allocate: Callable, *layout: Any) -> "_Shared":
        """All arrays, by `allocate(shape, dtype)`."""
        *spaces, length, workers = layout
        return cls(
            batch_env.Arrays.create(*spaces, length, allocate),
            allocate((length,), np.dtype(bool)),
            allocate((length,), np.dtype(np.int64)),
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
    """The environments of one worker, in its process.

    Results are collected in private arrays, and copied to the shared block at the end
    of a step: workers that wrote row by row to the same cache lines would wait for
    each other.
    """

    def __init__(self, index: int, first: int, envs: list, shared: _Shared, layout):
        rows = slice(first, first + len(envs))
        self._envs = list(enumerate(envs, first))
        self._shared = shared
        self._current = memoryview(shared.current[index])
        self._current[0] = -1
        self._split = checks.splitter(layout[1])
        self._actions = [leaf[rows] for leaf in shared.arrays.action]
        own = batch_env.Arrays.create(*layout[:3])
        self._writer = own.writer(layout[0])
        self._copies = [
            (target[rows], source[rows])
            for target, source in zip(
                shared.arrays.results(), own.results(), strict=True
            )
        ]

    def step(self):
        """Apply the actions of the block."""
        current, write = self._current, self._writer.step
        actions = self._split(self._actions)
        for (row, env), action in zip(self._envs, actions, strict=True):
            current[0] = row
            write(row, env.step(action))
        self._publish()

    def reset(self):
        """Begin episodes where the block says so."""
        for row, env in self._envs:
            if self._shared.restart[row]:
                self._current[0] = row
                seed = int(self._shared.seed[row])
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
    index: int,
    first: int,
    constructors: list[Callable[[], Any]],
    descriptor: int,
):
    """Main function of a worker process."""
    envs = []
    for constructor in constructors:
        envs.append(constructor())
        stack.callback(envs[-1].close)
        channel.send(processes.DONE)
    found = [(env.observation_space, env.action_space) for env in envs]
    channel.send(processes.RESULT, found)
    layout = channel.receive()[1]
    shared = _Shared.map(descriptor, *layout)
    os.close(descriptor)
    rows = _Rows(index, first, envs, shared, layout)
    while True:
        kind, value = channel.receive()
        try:
            if kind == processes.STEP:
                rows.step()
            elif kind == processes.RESET:
                rows.reset()
            else:
                *request, row = value
                external_process.respond(channel, envs[row - first], kind, request)
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


def _num_cpus() -> int:
    """Number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
