"""Child processes that serve environments: start, messages and end.

A child is a fresh interpreter that imports this module and runs one function. It does
not import `__main__` of the parent, so scripts need no main guard and never load
TensorFlow into their workers. Both sides hold one end of a channel:

    worker = Worker(function, argument, name=lambda: "Environment row 3")
    worker.send(channels.STEP)            # child: function(channel, stack, argument)
    kind, value = worker.receive()        # child: channel.send(channels.DONE)

A child leads a process group, which ends with it: processes that environments start do
not outlive it, unless they leave the group.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from agents.tools import channels, errors

GRACE = 2.0
"""Seconds that environments may take to close."""

_NAMES = {
    channels.START: "start",
    **dict.fromkeys(channels.STEPS, "step"),
    **dict.fromkeys(channels.RESETS, "reset"),
}

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SMALL = {**dict.fromkeys(_THREADS, "1"), "CUDA_VISIBLE_DEVICES": ""}
"""Environment variables of processes that run in large numbers."""

_BOOT = """
import sys
descriptor, *sys.path[:] = sys.argv[1:]
del sys.argv[1:]
from agents.tools import processes
processes.run_child(int(descriptor))
"""


class EnvError(errors.Failure):
    """Exception in an environment.

    The text names its row, the exception and the last command in one line, with the
    traceback below.
    """


class EnvProcessError(EnvError):
    """Environment process that raised, exited, was killed or did not answer.

    The text names the environment rows, the process, its end and the last command, with
    the traceback of the child if there is one.
    """


class Interrupted(BaseException):
    """Exception that is raised in a hanging child to get its traceback."""


class Worker:
    """Parent side of one child process.

    Args:
      function: Called in the child as `function(channel, stack, *arguments)`. Callbacks
        on the `contextlib.ExitStack` run at the end, after errors have been reported.
        Must be importable in the child.
      arguments: Sent to the child, pickled by value if necessary.
      name: Returns the subject of error messages: whatever the child serves.
      timeout: Longest wait for a reply in seconds, counted again when the name changes;
        None waits forever.
      pass_fds: File descriptors that the child inherits under the same numbers.
      environ: Environment variables that differ from those of this process.
    """

    def __init__(
        self,
        function: Callable,
        *arguments: Any,
        name: Callable[[], str],
        timeout: float | None = None,
        pass_fds: Sequence[int] = (),
        environ: Mapping[str, str] = SMALL,
    ):
        self.name = name
        self.command = "start"
        self._owner = os.getpid()
        self._process = None
        self._end = None
        ours, theirs = socket.socketpair()
        self._channel = channels.Channel(
            ours, lambda: self._process.poll() is None, name
        )
        with theirs:
            try:
                self._process = _launch(theirs.fileno(), pass_fds, environ)
                self.set_timeout(timeout)
                self.send(channels.START, (function, *arguments))
            except BaseException:
                close([self], grace=0)
                raise

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def set_timeout(self, seconds: float | None):
        """Limit the wait for every later reply, in seconds."""
        self._timeout = seconds
        self._channel.set_timeout(seconds)

    def send(self, kind: bytes, value: Any = None):
        """Send a command; `receive` reports a child that is gone.

        The value of a request for a call or an attribute begins with its name.
        """
        self.command = _NAMES.get(kind) or value[0]
        try:
            self._channel.send(kind, value)
        except channels.Disconnected:
            pass
        except TimeoutError:
            self._fail(f"did not take a command within {self._timeout:g} s", wait=0)
        except Exception as error:
            raise TypeError(
                "Cannot send the environment constructor or arguments to a worker "
                f"process: {errors.reason(error)}"
            ) from error

    def receive(self) -> tuple[bytes, Any]:
        """Return kind and value of the next reply.

        Raises:
          EnvProcessError: if the child failed, is gone, or took too long.
          Exception: that the child sent to be raised here.
        """
        try:
            kind, value = self._channel.receive()
        except channels.Disconnected:
            self._fail("ended")
        except TimeoutError:
            what = f"did not answer within {self._timeout:g} s"
            self._fail(what, self._interrupt(), wait=0)
        except Exception as error:
            what = f"sent what cannot be unpickled, {errors.reason(error)}"
            self._fail(what, (None, "", traceback.format_exc()), wait=0)
        if kind == channels.INVALID:
            raise value
        if kind == channels.ERROR:
            self._fail(f"raised {value[1]}", value)
        return kind, value

    def hang_up(self):
        """Ask the child to end; safe to call again."""
        self._end = self._end or time.monotonic()
        self._channel.close()

    def reap(self, grace: float):
        """Wait for the end until `grace` seconds after `hang_up`, then kill."""
        if self._process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0, self._end + grace - time.monotonic()))
        self._kill()
        self._owner = None  # Another process may get its id.

    def _kill(self):
        """Kill the child and its process group at once."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 0)  # Usually raises: no one is left.
            end_group(self.pid)

    def _interrupt(self) -> tuple | None:
        """Ask a hanging child where it hangs; return its report, if any.

        Raises:
          EnvError: if the child knows the reason.
        """
        self._process.send_signal(signal.SIGUSR1)
        self._channel.set_timeout(1.0)
        kind, value = None, None
        with contextlib.suppress(Exception):
            kind, value = self._channel.receive()
        if kind == channels.INVALID:
            self._kill()
            raise value
        return value if kind == channels.ERROR else None

    def _fail(
        self, what: str, report: tuple | None = None, wait: float = 5
    ) -> NoReturn:
        """Raise the error that describes the failure of this child.

        A report is the affected environments or None, one line, and a traceback.
        """
        where, _, text = report or (None, "", "")
        status = "still running, so it was killed"
        if wait:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = describe_end(self._process.wait(wait))
        self._kill()
        raise EnvProcessError(
            f"{where or self.name()}: worker process {self.pid} {what} ({status}); "
            f"last command: {self.command}." + (f"\n\n{text}" if text else "")
        )


def close(workers: Iterable[Worker], grace: float = GRACE):
    """End all workers; kill those still running after `grace` seconds."""
    workers = list(workers)
    for worker in workers:
        worker.hang_up()
    for worker in workers:
        worker.reap(grace)


def run_child(descriptor: int):
    """Run a child: read a function and its arguments, and call it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.signal(signal.SIGUSR1, _interrupt)
    if hasattr(os, "SCHED_BATCH"):  # The caller runs first: all wait for it.
        with contextlib.suppress(OSError):  # Some callers may not change it.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    threading.Thread(target=watch_parent, args=[os.getppid()], daemon=True).start()
    os.set_inheritable(descriptor, False)
    channel = channels.Channel(socket.socket(fileno=descriptor))
    code = 0
    stack = contextlib.ExitStack()
    try:
        function, *arguments = channel.receive()[1]
        function(channel, stack, *arguments)
    except channels.Disconnected:
        pass
    except EnvError as error:
        code = 1
        with contextlib.suppress(channels.Disconnected):
            channel.send(channels.INVALID, error)
    except BaseException as error:
        code = _exit_code(error)
        row = getattr(error, "agents_row", None)
        report = (
            None if row is None else f"Environment row {row}",
            errors.reason(error),
            traceback.format_exc(),
        )
        with contextlib.suppress(channels.Disconnected):
            channel.send(channels.ERROR, report)
    try:
        stack.close()
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    end_group(os.getpid())
    os._exit(code)  # Threads and exit handlers of environments must not delay it.


def failure(who: str, command: str, error: BaseException) -> EnvError:
    """Create the error for an exception of an environment in this process."""
    text = "".join(traceback.format_exception(error))
    return EnvError(
        f"{who} raised {errors.reason(error)}; last command: {command}.\n\n{text}"
    )


def _launch(
    descriptor: int, pass_fds: Sequence[int], environ: Mapping[str, str]
) -> subprocess.Popen:
    """Start a fresh interpreter with the module search path of this one."""
    command = [sys.executable, "-c", _BOOT, str(descriptor), *map(str, sys.path)]
    # Block interrupts, which the parent handles, until the child ignores them.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(
            command,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptor, *pass_fds),
            process_group=0,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def watch_parent(parent: int):
    """End this process and the group that it leads when its parent has ended.

    Meant for a thread, so that it works even if the environment hangs.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    if os.getpgrp() == os.getpid():
        end_group(os.getpid())
    os._exit(1)


def end_group(group: int):
    """Kill all processes of a group except this one; on Linux only.

    The resource trackers of `multiprocessing` are spared: they end after the others,
    and remove the shared memory and semaphores that these have left.
    """
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # It has just ended.
            if os.getpgid(int(name)) != group:
                continue
            with open(f"/proc/{name}/cmdline") as file:
                tracker = "resource_tracker" in file.read()
            if not tracker:
                os.kill(int(name), signal.SIGKILL)


def _interrupt(*_: Any) -> NoReturn:
    raise Interrupted("the caller waits no longer")


def _exit_code(error: BaseException) -> int:
    """Return the exit code of the interpreter for an uncaught exception."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


def describe_end(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
