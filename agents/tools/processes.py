"""Child processes that serve environments: how they start, speak and end.

A child is a fresh interpreter that imports this module and runs one function. It
does not import `__main__` of the parent, so scripts need no main guard and never
load TensorFlow into their workers. Both sides hold one end of a socket pair:

    worker = Worker(function, argument, name=lambda: "Environment row 3")
    worker.send(STEP)                     # child: function(channel, stack, argument)
    kind, value = worker.receive()        # child: channel.send(DONE)

When either end disappears, the other one sees the end of the stream at once.
"""

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import cloudpickle

# Messages are one byte, their kind; all but these carry a pickled value. Where a worker
# serves two batches, the second of each pair is for the other one.
STEPS, RESETS, DONE = (b"s", b"t"), (b"r", b"q"), b"."
STEP, RESET = STEPS[0], RESETS[0]
START, CALL, GET, RESULT, MISSING, INVALID, ERROR = (
    b"*", b"c", b"g", b"=", b"?", b"#", b"!"
)  # fmt: skip
_BARE = frozenset((*STEPS, *RESETS, DONE))
_NAMES = {
    START: "start",
    **dict.fromkeys(STEPS, "step"),
    **dict.fromkeys(RESETS, "reset"),
}

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ENVIRON = {**dict.fromkeys(_THREADS, "1"), "CUDA_VISIBLE_DEVICES": ""}

_BOOT = """
import sys
descriptor, *sys.path[:] = sys.argv[1:]
del sys.argv[1:]
from agents.tools import processes
processes.run_child(int(descriptor))
"""


class EnvProcessError(RuntimeError):
    """An environment process raised, exited, was killed or did not answer.

    The text names the environment rows, the process, how it ended, the last command,
    and holds the traceback of the child when there is one.
    """


class Disconnected(Exception):
    """The process at the other end of a channel is gone."""


class Channel:
    """Messages over a blocking socket.

    Waiting is left to the kernel, so that a message costs one system call on either
    side; a timeout shows as `TimeoutError`.
    """

    def __init__(self, connection: socket.socket):
        self._socket = connection

    def set_timeout(self, seconds: float | None):
        """Limit the wait for the other side; None means forever."""
        micros = 0 if seconds is None else max(1, int(seconds * 1e6))
        limit = struct.pack("ll", micros // 1_000_000, micros % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, kind: bytes, value: Any = None):
        """Send one message, whose value is ignored for kinds that carry none.

        Raises:
          Disconnected, TimeoutError: and whatever pickling the value raises.
        """
        if kind not in _BARE:
            payload = cloudpickle.dumps(value)
            kind = kind + struct.pack("<Q", len(payload)) + payload
        try:
            self._socket.sendall(kind)
        except BlockingIOError:
            raise TimeoutError from None
        except OSError as error:
            raise Disconnected from error

    def receive(self) -> tuple[bytes, Any]:
        """Wait for one message and return its kind and value.

        Raises:
          Disconnected, TimeoutError: and whatever unpickling the value raises.
        """
        kind = self._read(1)
        if kind in _BARE:
            return kind, None
        (size,) = struct.unpack("<Q", self._read(8))
        return kind, pickle.loads(self._read(size))

    def close(self):
        """Hang up; the other side sees the end of the stream."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        """Exactly this many bytes."""
        chunks = []
        while size:
            try:
                chunk = self._socket.recv(size)
            except BlockingIOError:
                raise TimeoutError from None
            except OSError as error:
                raise Disconnected from error
            if not chunk:
                raise Disconnected
            chunks.append(chunk)
            size -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class Worker:
    """The parent's side of one child process.

    Args:
      function: Called in the child as `function(channel, stack, *arguments)`; what it
        leaves on the `contextlib.ExitStack` is run at the end, after errors have been
        reported. Must be importable there.
      arguments: Sent to the child, pickled by value where necessary.
      name: Returns what the child serves, as the beginning of an error message.
      timeout: Seconds that a reply may take; None waits forever.
      pass_fds: File descriptors the child inherits under the same numbers.
    """

    def __init__(
        self,
        function: Callable,
        *arguments: Any,
        name: Callable[[], str],
        timeout: float | None = None,
        pass_fds: Sequence[int] = (),
    ):
        self.name = name
        self.command = "start"
        self._owner = os.getpid()
        self._process = None
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs:
            try:
                self._process = _launch(theirs.fileno(), pass_fds)
                self.set_timeout(timeout)
                self.send(START, (function, *arguments))
            except BaseException:
                close([self], grace=0)
                raise

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def set_timeout(self, seconds: float | None):
        """Limit the wait for every later reply."""
        self._timeout = seconds
        self._channel.set_timeout(seconds)

    def send(self, kind: bytes, value: Any = None):
        """Send a command; a child that is gone is reported by `receive`.

        The value of a request for a call or an attribute begins with its name.
        """
        self.command = _NAMES.get(kind) or value[0]
        try:
            self._channel.send(kind, value)
        except Disconnected:
            pass
        except TimeoutError:
            self._fail(f"did not take a command within {self._timeout:g} s", wait=0)
        except Exception as error:
            raise TypeError(
                "Cannot send the environment constructor or arguments to a worker "
                f"process: {type(error).__name__}: {error}"
            ) from error

    def receive(self) -> tuple[bytes, Any]:
        """Kind and value of the next reply.

        Raises:
          EnvProcessError: if the child failed, is gone, or took too long.
        """
        try:
            kind, value = self._channel.receive()
        except Disconnected:
            self._fail("ended")
        except TimeoutError:
            self._fail(f"did not answer within {self._timeout:g} s", wait=0)
        if kind == ERROR:
            self._fail("raised", value)
        return kind, value

    def hang_up(self):
        """Ask the child to end; safe to call again."""
        self._channel.close()

    def reap(self, deadline: float):
        """Wait until the deadline (monotonic seconds) for the end, then kill."""
        if self._process is None or self._owner != os.getpid():
            return
        try:
            self._process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _fail(self, what: str, text: str = "", wait: float = 5) -> NoReturn:
        """Raise the error that says how this child failed."""
        try:
            status = _describe(self._process.wait(wait))
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = "still running, so it was killed"
        raise EnvProcessError(
            f"{self.name()}: worker process {self.pid} {what} ({status}); last "
            f"command: {self.command}." + (f"\n\n{text}" if text else "")
        )


def close(workers: Iterable[Worker], grace: float = 2.0):
    """End all workers, killing those that do not within `grace` seconds."""
    workers = list(workers)
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + grace
    for worker in workers:
        worker.reap(deadline)


def run_child(descriptor: int):
    """Main program of a child: read a function and its arguments, and call it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if hasattr(os, "SCHED_BATCH"):  # The caller runs first, for all wait for it.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    threading.Thread(target=watch_parent, args=[os.getppid()], daemon=True).start()
    channel = Channel(socket.socket(fileno=descriptor))
    code = 0
    stack = contextlib.ExitStack()
    try:
        function, *arguments = channel.receive()[1]
        function(channel, stack, *arguments)
    except Disconnected:
        pass
    except BaseException as error:
        code = _exit_code(error)
        with contextlib.suppress(Disconnected):
            channel.send(ERROR, traceback.format_exc())
    try:
        stack.close()
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # Threads and exit handlers of environments must not delay it.


def _launch(descriptor: int, pass_fds: Sequence[int]) -> subprocess.Popen:
    """Start a fresh interpreter with the module search path of this one."""
    command = [sys.executable, "-c", _BOOT, str(descriptor), *map(str, sys.path)]
    environ = {**os.environ, **_ENVIRON}
    # Until the child ignores interrupts, which are the parent's to handle, block them.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptor, *pass_fds),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def watch_parent(parent: int):
    """End this process when its parent did, even if the environment hangs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _exit_code(error: BaseException) -> int:
    """Exit code that the interpreter would give for an uncaught exception."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


def _describe(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
