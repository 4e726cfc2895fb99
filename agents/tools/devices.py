"""Available devices, and the choice of devices for an algorithm."""

import contextlib
import logging
from collections.abc import Iterator

import tensorflow as tf

from agents.tools import placement


@contextlib.contextmanager
def use(
    policy: str | None = None, memory: str | None = None, replicas: int = 1
) -> Iterator[None]:
    """Place the variables of algorithms created inside the context.

    Args:
      policy: Device of everything but the memory, such as `GPU:0`; none for
        TensorFlow's choice.
      memory: Device of the memory; none for the policy's device.
      replicas: Number of devices with copies of networks and optimizers, which compute
        gradients together; see `optimizers.replicas`.

    Raises:
      ValueError: if there are too few devices.
    """
    strategy = _strategy(replicas) if replicas > 1 else None
    token = placement.current.set(
        (policy, memory if memory != policy else None, strategy)
    )
    try:
        with tf.device(policy) if policy else contextlib.nullcontext():
            yield
    finally:
        placement.current.reset(token)


def names() -> list[str]:
    """Return the names of all devices."""
    return [x.name.removeprefix("/device:") for x in tf.config.list_logical_devices()]


def accelerators() -> list[str]:
    """Return the names of devices for replicas; CPUs only if there are no others."""
    others = [name for name in names() if not name.startswith("CPU")]
    return others or names()


def _strategy(replicas: int) -> tf.distribute.Strategy:
    chosen = accelerators()[:replicas]
    if len(chosen) < replicas:
        there = ", ".join(chosen)
        raise ValueError(f"{replicas} replicas need as many devices; there is {there}.")
    logger = tf.get_logger()  # It logs each transfer of gradients.
    logger.setLevel(max(logger.level, logging.ERROR))
    return tf.distribute.MirroredStrategy(chosen)
