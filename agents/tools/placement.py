"""Devices of variables, their seeds, and the free memory for them.

Operations follow the variables that they use. `devices.use` chooses the devices.
"""

import contextlib
import contextvars
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import tensorflow as tf


def memory() -> Any:
    """Return a context for the creation of an algorithm's memory."""
    _, device, _ = current.get()
    return tf.device(device) if device else contextlib.nullcontext()


@contextlib.contextmanager
def networks(seed: int | None = None) -> Iterator[None]:
    """Enter a context for the creation of an algorithm's networks and optimizers.

    The seed is for layers that have no seed of their own.
    """
    *_, strategy = current.get()
    scope = strategy.scope() if strategy else contextlib.nullcontext()
    with scope, unnamed(), seeded(seed):
        yield


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Enter a context in which initializers of Keras without a seed get it from this.

    They draw one from Python's `random`, whose state is as before at the end.
    """
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def unnamed() -> Any:
    """Return a context that gives all new variables the same name in TensorFlow.

    Keras numbers the names of layers throughout a process, and TensorFlow stores 35 KB
    for every name that a variable ever had.
    """

    def create(make, **options):
        return make(**{**options, "name": "variable/"})  # No name scope is added.

    return tf.variable_creator_scope(create)


def function(body: Callable, jit: bool, memory: bool) -> Callable:
    """Create a graph function for the algorithm that is being created.

    Args:
      body: Function to trace.
      jit: Whether XLA compiles it, unless it needs several devices.
      memory: Whether it uses the memory in addition to the networks.
    """
    policy, device, strategy = current.get()
    several = strategy is not None or (memory and device is not None)
    compiled = (jit and not several) or None
    graph = tf.function(body, autograph=False, jit_compile=compiled)
    if policy is None:
        return graph

    def call(*args):
        with tf.device(policy):
            return graph(*args)

    return call


current: contextvars.ContextVar[tuple] = contextvars.ContextVar(
    "current", default=(None, None, None)
)
"""Device of everything but the memory, device of the memory, replica strategy."""


def free_bytes(group: pathlib.Path = pathlib.Path("/sys/fs/cgroup")) -> int:
    """Return the memory that is free without swapping, within a container's limit."""
    free = psutil.virtual_memory().available
    try:
        limit, used = (
            int((group / name).read_text()) for name in ("memory.max", "memory.current")
        )
        pairs = map(str.split, (group / "memory.stat").read_text().splitlines())
        cached = int(dict(pairs)["inactive_file"])  # Is given back on demand.
    except (OSError, ValueError):  # No container, or without a limit.
        return free
    return min(free, limit - used + cached)
