"""Images among observations: recognition, and conversion to channels last."""

import gymnasium
import numpy as np
import tensorflow as tf

SMALLEST = 36
"""Smallest height and width of images, which the Nature network needs."""


def recognized(space: gymnasium.Space) -> bool:
    """Return whether a leaf is an image, or several stacked ones.

    Its numbers are bytes or floating point, in the shape `[H, W, C]` or `[C, H, W]`,
    `[K, H, W, C]` or `[K, C, H, W]`, or, for bytes only, `[H, W]`. Height and width are
    at least `SMALLEST`, and there are fewer channels.
    """
    bytes_, rank = space.dtype == np.uint8, len(space.shape)
    if not (bytes_ or space.dtype.kind == "f"):
        return False
    if rank not in ((2, 3, 4) if bytes_ else (3, 4)):
        return False
    rows, columns, *channels = (space.shape[axis] for axis in _order(space.shape))
    smaller = min(rows, columns)
    return smaller >= SMALLEST and all(0 < x < smaller for x in channels)


def channels_first(space: gymnasium.Space) -> bool:
    """Return whether a leaf is one image `[C, H, W]`."""
    shape = space.shape
    return len(shape) == 3 and recognized(space) and _order(shape)[0] == 1


def channels_last(images: tf.Tensor) -> tf.Tensor:
    """Convert images `[B, ...]` in any of these shapes to `[B, H, W, channels]`."""
    shape = images.shape[1:]
    order = _order(shape)
    images = tf.transpose(images, [0, *(1 + axis for axis in order)])
    rows, columns = (shape[axis] for axis in order[:2])
    return tf.reshape(
        images, [-1, rows, columns, shape.num_elements() // rows // columns]
    )


def _order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of rows and columns, and then those of channels."""
    if len(shape) == 2:
        return 0, 1
    *stack, first, middle, last = range(len(shape))
    squares = shape[first] == shape[middle], shape[middle] == shape[last]
    # Images with more channels than rows, such as boards, are known by being square.
    later = squares[1] if squares[0] != squares[1] else shape[first] < shape[last]
    rows = first + later
    channel = last if rows == first else first
    return rows, rows + 1, *stack, channel
