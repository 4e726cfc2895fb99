"""Preprocessing stages of observations, declared by name."""

import math
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import bounds, config, errors, images, spaces

SIDE, LENGTH = bounds.Bounds(1, 10_000), bounds.Bounds(1, 10_000)
"""Range of side lengths in pixels, and of the number of stacked observations."""


class Stage(tf.Module):
    """Function from one part of observations, `[K, ...]`, to the next stage's input.

    Subclasses override `__call__`, and the other methods if they have state.
    """

    rearranges = False
    """Flag of stages whose results are values of the input, in their order: the bounds of
    integers become those of the results."""

    def __init__(self, space: gymnasium.Space) -> None:
        """Create a stage for inputs of a space."""
        super().__init__()
        self._spec = spaces.spec(space)

    def initial_state(self, size: int) -> Any:
        """Return the state at the beginning of episodes, a structure `[size, ...]`."""
        return ()

    def __call__(self, value: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        """Compute the result `[K, ...]`, and the next state."""
        raise NotImplementedError

    def update(self, value: tf.Tensor, mask: tf.Tensor) -> None:
        """Learn from training values `[K, ...]` where the mask `[K]` is true."""

    @property
    def kept(self) -> list[Any]:
        """Variables for checkpoints."""
        return list(self.variables)


class ImageResize(Stage):
    """Resizing of images, by averages of the covered pixels, to `[H, W, C]`."""

    def __init__(self, space: gymnasium.Space, height: int, width: int) -> None:
        """Set the new size in pixels."""
        super().__init__(space)
        _require_pixels(space)
        self._first = images.channels_first(space)
        bounds.require_options(SIDE, height=height, width=width)
        self._size = (height, width)

    def __call__(self, value, state):
        """Resize images; keep their dtype."""
        value = _image(value, self._first)
        _, rows, columns, channels = value.shape
        height, width = self._size
        vertical, horizontal = _cover(rows, height), _cover(columns, width)
        image = tf.reshape(tf.cast(value, tf.float32), [-1, rows, columns * channels])
        image = tf.reshape(tf.matmul(vertical, image), [-1, columns, channels])
        image = tf.matmul(horizontal, image)
        image = tf.reshape(image, [-1, height, width, channels])
        if value.dtype.is_integer:
            # Round halves up, robustly against the last bits of an export.
            image = tf.floor(image + 0.501)
        return tf.cast(image, value.dtype), state


class Grayscale(Stage):
    """Conversion of images of three channels to luminance `[H, W, 1]`."""

    def __init__(self, space: gymnasium.Space) -> None:
        """Create the stage; raise ValueError for integers of more than 16 bits."""
        super().__init__(space)
        _require_pixels(space)
        self._first = images.channels_first(space)

    def __call__(self, value, state):
        """Compute luminance with the weights of Rec. 601; keep the dtype."""
        whole = value.dtype.is_integer  # Exact, so equal in exports.
        weights = tf.constant([299, 587, 114], tf.int32 if whole else tf.float32)
        image = tf.cast(_image(value, self._first, 3), weights.dtype)
        gray = tf.reduce_sum(image * weights, -1, keepdims=True)
        gray = (gray + 500) // 1000 if whole else gray / 1000.0
        return tf.cast(gray, value.dtype), state


class Center(Stage):
    """Subtraction of each observation's mean; float32, bytes in units of 255."""

    def __call__(self, value, state):
        """Subtract the mean."""
        scaled = tf.cast(value, tf.float32)
        if value.dtype == tf.uint8:
            scaled /= 255.0
        axes = list(range(1, value.shape.rank))
        return scaled - tf.reduce_mean(scaled, axes, keepdims=True), state


class Normalize(Stage):
    """Normalization to mean zero and deviation one over all training data."""

    def __init__(self, space: gymnasium.Space, clip: float | None = 5.0) -> None:
        """Set the bound of the results, in deviations; none for no bound."""
        super().__init__(space)
        bounds.require_options(bounds.POSITIVE, clip=clip)
        self._normalize = normalize.StreamingNormalize(self._spec.shape, clip=clip)

    def __call__(self, value, state):
        """Normalize by the statistics before this step; float32."""
        return self._normalize(tf.cast(value, tf.float32)), state

    def update(self, value, mask):
        """Merge the values into the statistics."""
        self._normalize.update(tf.cast(value, tf.float32), mask)


class Clip(Stage):
    """Clipping of values between two bounds."""

    rearranges = True

    def __init__(self, space: gymnasium.Space, low: float, high: float) -> None:
        """Set the bounds."""
        super().__init__(space)
        if not low < high:
            raise ValueError(f"low must be less than high, got {low} and {high}.")
        self._bounds = low, high

    def __call__(self, value, state):
        """Clip values; keep their dtype."""
        low, high = self._bounds
        if value.dtype.is_integer:
            low, high = _inner(low, high, value.dtype)
            if low > high:
                raise ValueError(f"there is no integer between {self._bounds}.")
        low, high = (tf.constant(x, value.dtype) for x in (low, high))
        return tf.clip_by_value(value, low, high), state


class Sequence(Stage):
    """Concatenation of the episode's last observations, oldest first, on the last axis.

    This is the axis of channels, which images `[C, H, W]` get at the end.
    Before the beginning of an episode, its first observation repeats; Mnih et al.
    (2015), section "Preprocessing".
    """

    rearranges = True

    def __init__(self, space: gymnasium.Space, length: int) -> None:
        """Set the number of observations."""
        super().__init__(space)
        bounds.require_options(LENGTH, length=length)
        self._length, self._shape = length, self._spec.shape or (1,)
        self._first = images.channels_first(space)
        if self._first:
            self._shape = (*self._shape[1:], self._shape[0])

    def initial_state(self, size):
        """Return empty previous frames, and whether there are any."""
        shape = [size, self._length - 1, *self._shape]
        return tf.zeros(shape, self._spec.dtype), tf.zeros([size], tf.bool)

    def __call__(self, value, state):
        """Append frames; return the last ones `[K, ..., F * length]`."""
        frames, known = state
        value = _last(value) if self._first else value
        value = tf.reshape(value, [-1, 1, *self._shape])
        known = tf.reshape(known, [-1, *[1] * (value.shape.rank - 1)])
        # LiteRT cannot choose between unsigned integers.
        kind = tf.int32 if value.dtype in (tf.uint8, tf.uint16) else value.dtype
        first = tf.where(known, tf.cast(frames, kind), tf.cast(value, kind))
        frames = tf.concat([tf.cast(first, value.dtype), value], 1)
        rank = frames.shape.rank
        order = [0, *range(2, rank - 1), 1, rank - 1]
        stacked = tf.transpose(frames, order)
        shape = [*self._shape[:-1], self._length * self._shape[-1]]
        known = tf.ones(tf.shape(value)[:1], tf.bool)
        return tf.reshape(stacked, [-1, *shape]), (frames[:, 1:], known)


class OneHot(Stage):
    """Encoding of integers as one-hot vectors, side by side."""

    def __init__(self, space: gymnasium.Space) -> None:
        """Create the stage; raise ValueError unless the space has bounded integers."""
        super().__init__(space)
        if not np.issubdtype(self._spec.dtype, np.integer):
            raise ValueError(f"only integers can be one_hot, not {space}.")
        low, count = (x.ravel() for x in spaces.integer_range(space))
        if max(count) > 2**20:
            raise ValueError(f"{space} has too many values for one_hot.")
        self._low, self._count = [int(x) for x in low], [int(x) for x in count]

    def __call__(self, value, state):
        """Encode values as float32 `[K, F]`."""
        value = tf.cast(tf.reshape(value, [-1, len(self._low)]), tf.int64) - self._low
        columns = tf.unstack(tf.cast(value, tf.int32), axis=1)  # Int32 for LiteRT.
        parts = zip(columns, self._count, strict=True)
        return tf.concat([tf.one_hot(x, n) for x, n in parts], -1), state


class Flatten(Stage):
    """Flattening of values to vectors `[F]`."""

    rearranges = True

    def __call__(self, value, state):
        """Flatten values; keep their dtype."""
        return tf.reshape(value, [-1, int(np.prod(value.shape[1:]))]), state


class Function(Stage):
    """Application of a function, by its import path, to `[K, ...]`."""

    def __init__(self, space: gymnasium.Space, path: str) -> None:
        super().__init__(space)
        self._function = config.find(path)

    def __call__(self, value, state):
        """Apply the function."""
        return self._function(value), state


class Custom(Stage):
    """Application of a user's object to `[K, ...]`."""

    def __init__(self, space: gymnasium.Space, made: Any) -> None:
        super().__init__(space)
        self._made = made

    def __call__(self, value, state):
        """Apply the object."""
        return self._made(value), state

    @property
    def kept(self):
        """Variables of the object, if it is a layer or module."""
        return list(getattr(self._made, "variables", ()))


TYPES = {
    "image_resize": ImageResize,
    "grayscale": Grayscale,
    "center": Center,
    "normalize": Normalize,
    "clip": Clip,
    "sequence": Sequence,
    "one_hot": OneHot,
    "flatten": Flatten,
    "function": Function,
}
"""Stages by the `type` of their declaration."""


def create(declaration: Any, space: gymnasium.Space) -> Stage:
    """Create a stage from a name, or from a mapping of arguments with a `type`.

    Types are `TYPES`, or the import path `module:name` of a class, or of a function
    that returns a callable for `[K, ...]`.

    Raises:
      ConfigError: for unknown types and arguments, and unsuitable spaces.
    """
    options = config.declaration(declaration, "a preprocessing stage")
    kind = options.pop("type")
    if ":" in str(kind):
        made = config.call(config.find(kind), options, f"preprocessing {kind}")
        if not callable(made):
            raise config.ConfigError(
                f"preprocessing {kind} is {made!r}, which is not callable."
            )
        return Custom(space, made)
    if kind not in TYPES:
        hint = config.did_you_mean(kind, TYPES)
        raise config.ConfigError(f"unknown preprocessing {kind!r}; {hint}")
    options = {"space": space, **options}
    return config.call(TYPES[kind], options, f"preprocessing {kind}")


def result(stage: Stage, space: gymnasium.Space) -> gymnasium.Space:
    """Return the space of a stage's results for inputs of a space.

    Raises:
      ConfigError: if the stage does not accept the inputs.
    """
    name = type(stage).__name__
    spec = spaces.spec(space)
    with errors.framed(f"preprocessing {name} cannot take {space}", config.ConfigError):
        value, _ = stage(tf.zeros([1, *spec.shape], spec.dtype), stage.initial_state(1))
    if not tf.is_tensor(value):
        raise config.ConfigError(
            f"preprocessing {name} returns {value!r}, which is not a tensor."
        )
    shape, dtype = tuple(value.shape[1:]), value.dtype.as_numpy_dtype
    if np.issubdtype(dtype, np.integer):
        if stage.rearranges:
            return _rearranged(stage, space, dtype)
        bounds = np.iinfo(dtype)
        return gymnasium.spaces.Box(bounds.min, bounds.max, shape, dtype)
    if value.dtype == tf.bool:
        return gymnasium.spaces.Box(0, 1, shape, bool)
    if value.dtype != tf.float32:
        raise config.ConfigError(
            f"preprocessing {name} returns {value.dtype.name}; cast it to float32, an "
            "integer type or bool."
        )
    return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)


def _rearranged(stage: Stage, space: gymnasium.Space, dtype: Any) -> gymnasium.Space:
    """Return the space of an integer space's rearranged values; choices remain ones."""
    if isinstance(space, gymnasium.spaces.Box):
        ends = space.low, space.high
    else:
        low, count = spaces.integer_range(space)
        ends = low, low + (count - 1)
    low, high = (
        stage(tf.constant(x[None], dtype), stage.initial_state(1))[0][0].numpy()
        for x in ends
    )
    if not hasattr(space, "start"):
        return gymnasium.spaces.Box(low, high, dtype=dtype)
    count = high.astype(np.int64) - low + 1
    if not count.shape:
        return gymnasium.spaces.Discrete(int(count), start=int(low))
    return gymnasium.spaces.MultiDiscrete(count, dtype, start=low)


def _inner(low: float, high: float, dtype: tf.DType) -> tuple[int, int]:
    """Return the lowest and the highest integer of a dtype between two bounds.

    Bounds beyond all integers become the nearest ones; casts would wrap around.
    """
    low, high = (min(max(x, dtype.min), dtype.max) for x in (low, high))
    return math.ceil(low), math.floor(high)


def _cover(old: int, new: int) -> np.ndarray:
    """Return shares `[new, old]` of old pixels in new ones along one axis."""
    edges = np.linspace(0, old, new + 1)
    low, high = edges[:-1, None], edges[1:, None]
    pixel = np.arange(old)
    overlap = np.minimum(high, pixel + 1) - np.maximum(low, pixel)
    return (np.maximum(overlap, 0) * new / old).astype(np.float32)


def _require_pixels(space: gymnasium.Space) -> None:
    """Raise ValueError for integers of more than 16 bits, which would be spoiled."""
    if np.issubdtype(space.dtype, np.integer):
        low, counts = spaces.integer_range(space)
        if (low < -(2**15)).any() or (low + counts > 2**16).any():
            raise ValueError(
                f"pixels of at most 16 bits are needed, not {space}; cast them to "
                "float32 by a stage 'function'."
            )


def _image(value: tf.Tensor, first: bool, channels: int | None = None) -> tf.Tensor:
    """Return images with channels last; raise ValueError unless these are images."""
    value = _last(value) if first else value
    wrong = value.shape.rank != 4 or (channels and value.shape[-1] != channels)
    if wrong:
        raise ValueError(
            f"images [H, W, {channels or 'C'}] are needed, got the shape "
            f"{list(value.shape[1:])}."
        )
    return value


def _last(value: tf.Tensor) -> tf.Tensor:
    """Move the channels of images `[K, C, H, W]` to the end."""
    return tf.transpose(value, [0, 2, 3, 1])
