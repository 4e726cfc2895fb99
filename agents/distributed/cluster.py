"""Ray clusters: started on this machine or found elsewhere, with their resources."""

import contextlib
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

from agents.distributed import guard
from agents.environments import workers
from agents.tools import checks, errors

TIMEOUT = 10.0
"""Seconds within which a cluster must answer."""


class DistributedError(errors.Mistake):
    """Request that cannot run on Ray, in one line."""


class WorkerError(errors.Failure):
    """Failure of code that ran on Ray, with the known details."""


def require_ray() -> None:
    """Raise DistributedError unless Ray is installed; configure its behavior."""
    behaviour = {
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Actors hide GPUs themselves.
        "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # It reports each dead process.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Acting is not less urgent than learning.
    }
    for name, value in behaviour.items():  # Ray reads them at its import.
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings(action="ignore"):
            import ray  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise DistributedError(
            "the executor ray needs Ray, which is not installed; "
            "pip install 'agents-in-graph[ray]'."
        ) from None


def share(num_agents: int, num_workers: int | None, free: int, where: str) -> list[int]:
    """Return the rows of each worker, as equal as possible; by default one per CPU.

    Raises:
      DistributedError: if there are fewer CPUs, or agents, than workers.
    """
    if num_workers is None:
        num_workers = max(min(free, num_agents), 1)
    checks.positive_integer("num_workers", num_workers, DistributedError)
    if num_workers > free:
        raise DistributedError(
            f"{num_workers} workers need a CPU each, but {free} are free {where}; "
            "lower --num_workers, or wait until more are free."
        )
    if num_workers > num_agents:
        raise DistributedError(
            f"{num_workers} workers cannot share {num_agents} agents; lower "
            "--num_workers, or raise environment.num_agents."
        )
    each, more = divmod(num_agents, num_workers)
    return [each + (index < more) for index in range(num_workers)]


@contextlib.contextmanager
def connected(
    address: str | None, num_workers: int | None, num_agents: int
) -> Iterator[list[int]]:
    """Connect to Ray during the context, and yield the rows of each worker.

    Without an address, Ray starts on this machine, and ends with the context or this
    process, unless the process is already connected.

    Raises:
      DistributedError: if no cluster answers, or too few CPUs are free.
    """
    require_ray()
    import ray

    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise DistributedError(
                f"this process is connected to Ray at {here}; leave out the address, or "
                "call ray.shutdown() first."
            )
        free = free_cpus(num_workers or 1)
        yield share(num_agents, num_workers, free, "on the cluster")
        return
    if address is None:
        free = workers.num_cpus()
        share(num_agents, num_workers, free, "on this machine")  # Before starting.
    else:
        probe(address)
    try:
        _start(address)
        free = free_cpus(num_workers or 1)
        with Pulse().guarded():
            yield share(num_agents, num_workers, free, "on the cluster")
    finally:
        ray.shutdown()


def free_cpus(wanted: int = 0) -> int:
    """Return the number of free CPUs; wait a little for the wanted number.

    CPUs of actors that were just killed become free a moment later.
    """
    import ray

    deadline = time.monotonic() + TIMEOUT
    while True:
        free = int(ray.available_resources().get("CPU", 0))
        if free >= wanted or time.monotonic() > deadline:
            return free
        time.sleep(0.1)


class Pulse:
    """Checker of the Ray processes that this process depends on.

    These are the raylet of this machine and, if it runs here, the GCS. A GCS elsewhere
    may come back; Ray waits a minute for it.
    """

    def __init__(self) -> None:
        """Find the sockets of these processes."""
        import ray

        context = ray.get_runtime_context()
        (here,) = (x for x in ray.nodes() if x["NodeID"] == context.get_node_id())
        raylet = here["RayletSocketName"]
        self._logs = str(pathlib.Path(raylet).parents[1] / "logs")
        self._sockets = {"raylet": (socket.AF_UNIX, raylet)}
        host, _, port = context.gcs_address.rpartition(":")
        if host == here["NodeManagerAddress"]:
            self._sockets["gcs_server"] = socket.AF_INET, (host, int(port))

    def check(self) -> None:
        """Check that the processes are alive.

        Raises:
          WorkerError: if one has died.
        """
        for name, (family, address) in self._sockets.items():
            try:
                with socket.socket(family) as connection:
                    connection.settimeout(TIMEOUT)
                    connection.connect(address)
            except OSError:
                raise WorkerError(guard.message(name, self._logs)) from None

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Report the reason if Ray ends this process during the context."""
        process = subprocess.Popen(
            [sys.executable, "-IS", guard.__file__, self._logs, str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C does not end it.
        )
        try:
            yield
        finally:
            process.communicate(guard.FAREWELL)


def probe(address: str) -> None:
    """Check that a cluster answers at `host:port`, or the `auto` one of this machine.

    Ray itself tries for more than a minute, and then ends the process.
    """
    silence = DistributedError(
        f"no Ray cluster answers at {address!r} within {TIMEOUT:g} s; start one by "
        "`ray start --head`, and give the address that it names."
    )
    if address != "auto" and not _listens(address):
        raise silence
    program = "from ray.scripts import scripts; scripts.main()"
    command = [sys.executable, "-c", program, "health-check", "--address", address]
    try:
        subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    except subprocess.TimeoutExpired:
        raise silence from None
    except subprocess.CalledProcessError as error:
        if b"AuthenticationError" not in error.stderr:
            raise silence from None
        if address == "auto":  # Ray finds the token itself.
            return
        raise DistributedError(  # The user decides about tokens.
            f"the Ray cluster at {address!r} wants a token; set RAY_AUTH_MODE=token if "
            "you trust it, see docs/distributed.md."
        ) from None


def _listens(address: str) -> bool:
    """Return whether anything listens at `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise DistributedError(
            f"--ray_address must be host:port or auto, got {address!r}."
        )
    try:
        socket.create_connection((host, int(port)), TIMEOUT).close()
    except (OSError, OverflowError):
        return False
    return True


def _start(address: str | None) -> None:
    """Start or connect, silently."""
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    options = {} if address else {"include_dashboard": False}
    if address is None and workers.num_cpus() < (os.cpu_count() or 1):
        options["num_cpus"] = workers.num_cpus()  # Ray would count all.
    try:
        with warnings.catch_warnings(action="ignore"), _signals():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                configure_logging=False,
                **options,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DistributedError(f"cannot connect to Ray: {reason}") from error


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Hold Ctrl-C back during the context, and keep the handler of SIGTERM.

    Half connected, Ray would crash this process at its end; and its own handler of
    SIGTERM prints a stack of C++.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = []
    interrupt = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, interrupt)
    if pressed:
        raise KeyboardInterrupt
