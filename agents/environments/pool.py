"""Processes that serve the rows of batches, and memory shared with the caller.

Each worker owns some rows. All numbers travel through one block of anonymous shared
memory, so that a step costs one byte to wake each worker, and one for its reply:

    caller                                   worker
    actions to the block, one byte   ---->   steps its rows, results to the block
    copies the results out           <----   one byte

The block has no name in the file system, so no failure leaves it behind.
"""

import collections
import functools
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.tools import (
    batch_env,
    channels,
    checks,
    external_process,
    processes,
    transitions,
)

_ALIGNMENT = 64


class Pool:
    """Worker processes, with memory that they share with one or two batches.

    A worker calls `serve(channel, stack, index, rows, task, descriptor)`. It constructs
    environments, sends DONE before each one whose row is known, sends the RESULT
    (spaces of every row and anything else), and calls `obey`.

    Args:
      serve: Main function of a worker.
      tasks: Input of each worker, pickled by value if necessary.
      owner: Worker of each row, `[N]`.
      parts: Number of batches, of equal size.
      timeout: Seconds that a worker may take for a step or reset of the row that it
        names as the current one, or for a whole command if it names none; None for no
        limit.
      start_timeout: Seconds that the construction of one environment may take.
      environ: Environment variables that differ in workers.

    Attributes:
      parts: Rows of each batch.
      owner: Worker of each row, `[N]`.
      spaces: Observation and action space of one environment.
      besides: Further information from each worker.

    Raises:
      ValueError: if the spaces of the environments differ.
      processes.EnvProcessError: if a worker fails.
    """

    def __init__(
        self,
        serve: Callable,
        tasks: Sequence[Any],
        owner: np.ndarray,
        parts: int,
        timeout: float | None,
        start_timeout: float | None,
        environ: dict[str, str],
    ):
        size = len(owner) // parts
        self.parts = [slice(x * size, (x + 1) * size) for x in range(parts)]
        self.owner = owner
        self._workers: list[processes.Worker] = []
        self._waiting = [collections.deque() for _ in tasks]
        self._closer = weakref.finalize(self, processes.close, self._workers)
        rows = [np.flatnonzero(owner == index).tolist() for index in range(len(tasks))]
        progress = _Progress(rows)
        descriptor = _anonymous_file()
        try:
            for index, task in enumerate(tasks):
                worker = processes.Worker(
                    *(serve, index, rows[index], task, descriptor),
                    name=functools.partial(progress.name, index),
                    timeout=start_timeout,
                    pass_fds=[descriptor],
                    environ=environ,
                )
                self._workers.append(worker)
            self.spaces, self.besides = self._construct(progress)
            layout = (*self.spaces, len(owner), len(tasks))
            self.shared = Shared.map(descriptor, *layout)
            self.shared.current[:] = -1
            progress.current = self.shared.current[:, 0]
            for worker in self._workers:
                worker.set_timeout(timeout)
                worker.send(channels.START, (layout, self.parts))
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
        """Wait until all workers have finished their work for one of the batches."""
        try:
            for member, waiting in enumerate(self._waiting):
                while part in waiting:
                    self._workers[member].receive()
                    waiting.popleft()
        except BaseException:  # Replies could be left over.
            self.close()
            raise

    def request(self, row: int, kind: bytes, *request: Any) -> Any:
        """Send a request of a `Remote` to one environment; return the reply."""
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
        if kind == channels.MISSING:
            raise AttributeError(value)
        return value

    def _require_open(self):
        if not self._closer.alive:
            raise RuntimeError("This batch of environments has been closed.")

    def _construct(self, progress: "_Progress") -> tuple[tuple, list[Any]]:
        """Wait until all environments are constructed."""
        found, besides = [None] * len(self.owner), []
        for index, worker in enumerate(self._workers):
            rows = iter(progress.rows[index])
            while (message := worker.receive())[0] == channels.DONE:
                progress.current[index] = next(rows)
            progress.current[index] = -1
            pairs, more = message[1]
            besides.append(more)
            for row, pair in zip(progress.rows[index], pairs, strict=True):
                found[row] = pair
        return checks.common_spaces(found), besides


class PoolRows(batch_env.Backend):
    """Batch of the rows of a pool, or a part of them; the info of a step is empty.

    Attributes:
      besides: Further information from each worker.
    """

    def __init__(self, pool: Pool, part: int = 0):
        self._pool, self._part, self.besides = pool, part, pool.besides
        self.first_row = pool.parts[part].start
        self._owner = pool.owner[pool.parts[part]]
        self._members = np.unique(self._owner)
        super().__init__(*pool.spaces, pool.shared.buffers.part(pool.parts[part]))

    def __getitem__(self, index: int) -> external_process.Remote:
        return _Row(self._pool, range(len(self))[index] + self.first_row)

    def close(self):
        self._pool.close()

    def _start(self, restart: bool):
        self._pool.shared.restart[self._part] = restart
        self._pool.send(self._part, self._members, channels.STEPS)

    def _finish(self, restart: bool) -> dict:
        self._pool.wait(self._part)
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        part, shared = self._pool.parts[self._part], self._pool.shared
        shared.begin[part] = False
        shared.begin[part.start + rows] = True
        shared.seed[part.start + rows] = -1 if seeds is None else seeds
        self._pool.send(self._part, np.unique(self._owner[rows]), channels.RESETS)
        self._pool.wait(self._part)


def obey(
    channel: channels.Channel,
    worker: int,
    rows: Sequence[int],
    descriptor: int,
    create: Callable[["Shared", int, list[int], tuple], Any],
    environment: Callable[[int], Any],
):
    """Execute the commands of the caller in a worker, until it hangs up.

    Args:
      channel: Channel to the caller.
      worker: Number of this worker.
      rows: Rows of the worker.
      descriptor: File of the shared memory.
      create: Creates an object with methods `step` and `reset` from the shared memory,
        the number of a part, the rows in it, and the spaces.
      environment: Function from a row to the object that answers requests.
    """
    layout, parts = channel.receive()[1]
    shared = Shared.map(descriptor, *layout)
    os.close(descriptor)
    commands = {}
    for index, part in enumerate(parts):
        own = [row for row in rows if part.start <= row < part.stop]
        if own:
            served = create(shared, index, own, layout[:2])
            commands[channels.STEPS[index]] = served.step
            commands[channels.RESETS[index]] = served.reset
    while True:
        kind, value = channel.receive()
        try:
            if kind in commands:
                commands[kind]()
            else:
                *request, row = value
                env = environment(row)
                external_process.respond(channel, env, kind, request)
                continue
            channel.send(channels.DONE)
        except checks.EnvDataError as error:
            row = shared.current[worker, 0]
            if row >= 0:
                error = checks.located(f"Environment row {row}", error)
            channel.send(channels.INVALID, error)


class _Row(external_process.Remote):
    """Client of one environment of a pool; requests are answered before they return."""

    def __init__(self, pool: Pool, row: int):
        self._pool = pool
        self._row = row

    def _request(self, kind: bytes, *request: Any) -> Callable[[], Any]:
        result = self._pool.request(self._row, kind, *request)
        return lambda: result


class _Progress:
    """Record of the row that each worker is busy with, or -1, for error messages."""

    def __init__(self, rows: list[list[int]]):
        self.rows = rows
        self.current = np.full(len(rows), -1)

    def name(self, index: int) -> str:
        """Return the beginning of an error message about a worker."""
        rows = self.rows[index]
        if self.current[index] in rows:
            return f"Environment row {self.current[index]}"
        if len(rows) == 1:
            return f"Environment row {rows[0]}"
        if len(rows) == rows[-1] - rows[0] + 1:
            return f"Environment rows {rows[0]} to {rows[-1]}"
        return f"Environment rows {', '.join(map(str, rows))}"


class Shared(NamedTuple):
    """Shared block: arrays of the batch, and further ones for workers."""

    buffers: transitions.Buffers
    begin: np.ndarray  # bool [N], rows to reset.
    seed: np.ndarray  # int64 [N], negative for none.
    restart: np.ndarray  # bool [2], whether steps of a part restart rows.
    current: np.ndarray  # int64 [workers, 8], the busy row or -1 first.

    @classmethod
    def create(cls, allocate: Callable, *layout: Any) -> "Shared":
        """Create all arrays by `allocate(shape, dtype)`."""
        *spaces, length, workers = layout
        return cls(
            transitions.Buffers.create(*spaces, length, allocate),
            allocate((length,), np.dtype(bool)),
            allocate((length,), np.dtype(np.int64)),
            allocate((2,), np.dtype(bool)),
            allocate((workers, 8), np.dtype(np.int64)),
        )

    @classmethod
    def map(cls, descriptor: int, *layout: Any) -> "Shared":
        """Map the arrays in the memory of a file, shared by all that map it."""
        measure = _Allocator()
        cls.create(measure, *layout)
        os.ftruncate(descriptor, measure.size)
        return cls.create(_Allocator(mmap.mmap(descriptor, measure.size)), *layout)


class _Allocator:
    """Allocator of consecutive arrays in a buffer, or a counter of their bytes."""

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


def _anonymous_file() -> int:
    """Return the descriptor of an empty file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("agents")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
