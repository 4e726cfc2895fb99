"""On which devices variables are, and with them the operations that use them."""

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def use(
    policy: str | None = None, memory: str | None = None, replicas: int = 1
) -> Iterator[None]:
    """Place the variables of the algorithm that is made here.

    Args:
      policy: Device of all but the memory, such as `GPU:0`; none for TensorFlow's
        choice.
      memory: Device of the memory; none for that of the policy.
      replicas: Number of devices with a copy of the networks and optimizers, which
        compute the gradients together; see `optimizers.replicas`.

    Raises:
      ValueError: if there are fewer devices.
    """
    strategy = _strategy(replicas) if replicas > 1 else None
    token = _current.set((policy, memory if memory != policy else None, strategy))
    try:
        with tf.device(policy) if policy else contextlib.nullcontext():
            yield
    finally:
        _current.reset(token)


def memory() -> Any:
    """Context in which an algorithm makes its memory."""
    _, device, _ = _current.get()
    return tf.device(device) if device else contextlib.nullcontext()


def networks() -> Any:
    """Context in which an algorithm makes its networks and all else that it trains."""
    *_, strategy = _current.get()
    return strategy.scope() if strategy else contextlib.nullcontext()


def function(body: Callable, jit: bool, memory: bool) -> Callable:
    """Graph function of the algorithm that is made here.

    Args:
      body: What it does.
      jit: Compile it by XLA, unless it needs several devices.
      memory: Whether it uses the memory besides the networks.
    """
    policy, device, strategy = _current.get()
    several = strategy is not None or (memory and device is not None)
    graph = tf.function(
        body, autograph=False, jit_compile=(jit and not several) or None
    )
    if policy is None:
        return graph

    def call(*args):
        with tf.device(policy):
            return graph(*args)

    return call


def devices() -> list[str]:
    """Names of all devices that there are."""
    return [x.name.removeprefix("/device:") for x in tf.config.list_logical_devices()]


def accelerators() -> list[str]:
    """Names of the devices for replicas: processors only where there are no others."""
    others = [name for name in devices() if not name.startswith("CPU")]
    return others or devices()


_current: contextvars.ContextVar[tuple] = contextvars.ContextVar(
    "_current", default=(None, None, None)
)


def _strategy(replicas: int) -> tf.distribute.Strategy:
    chosen = accelerators()[:replicas]
    if len(chosen) < replicas:
        there = ", ".join(chosen)
        raise ValueError(f"{replicas} replicas need as many devices; there is {there}.")
    logger = tf.get_logger()  # It tells how gradients travel.
    logger.setLevel(max(logger.level, logging.ERROR))
    return tf.distribute.MirroredStrategy(chosen)
