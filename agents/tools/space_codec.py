"""Gymnasium spaces as JSON values and back; only unknown classes are pickled."""

import base64
import math
import pickle
from typing import Any

import numpy as np
from gymnasium import spaces

from agents.tools import errors


class SpaceCodecError(errors.Mistake):
    """Space that cannot be saved or read back, in one line."""


def encode(space: spaces.Space) -> dict[str, Any]:
    """Encode a space as a JSON value, such as `{"type": "Discrete", "n": 3, ...}`.

    Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are written in parts;
    spaces of other classes, even nested ones, are pickled. The state of random
    generators is lost.

    Raises:
      SpaceCodecError: if a space cannot be pickled.
    """
    kind, value = type(space), {"type": type(space).__name__}
    if kind is spaces.Box and space.dtype.itemsize <= 8:  # JSON has no more digits.
        bounds = {
            name: _values(getattr(space, name))
            for name in ("low", "high", "bounded_below", "bounded_above")
        }
        return {**value, "dtype": space.dtype.str, "shape": list(space.shape), **bounds}
    if kind is spaces.Discrete:
        numbers = {"n": int(space.n), "start": int(space.start)}
        return {**value, "dtype": space.dtype.str, **numbers}
    if kind is spaces.MultiDiscrete:
        numbers = {"nvec": _values(space.nvec), "start": _values(space.start)}
        shape = list(space.nvec.shape)
        return {**value, "dtype": space.dtype.str, "shape": shape, **numbers}
    if kind is spaces.MultiBinary:
        return {**value, "n": np.array(space.n).tolist()}
    if kind is spaces.Tuple:
        return {**value, "spaces": [encode(child) for child in space.spaces]}
    if kind is spaces.Dict and all(isinstance(key, str | int) for key in space.spaces):
        pairs = [[key, encode(child)] for key, child in space.spaces.items()]
        return {**value, "spaces": pairs}
    name = f"{kind.__module__}.{kind.__qualname__}"
    try:
        data = pickle.dumps(space)
    except Exception as error:  # From the class of the space.
        raise SpaceCodecError(f"the space {name} cannot be saved: {error}.") from error
    return {"type": "pickle", "of": name, "data": base64.b85encode(data).decode()}


def decode(value: dict[str, Any], allow_pickle: bool = False) -> spaces.Space:
    """Decode a value that `encode` returned.

    Args:
      value: JSON value.
      allow_pickle: Whether to unpickle other classes, which may run any code.

    Raises:
      SpaceCodecError: for pickled spaces without `allow_pickle`, or wrong values.
    """
    kind = value["type"]
    if kind == "pickle":
        return _unpickle(value, allow_pickle)
    if kind == "MultiBinary":
        return spaces.MultiBinary(value["n"])
    if kind == "Tuple":
        return spaces.Tuple([decode(x, allow_pickle) for x in value["spaces"]])
    if kind == "Dict":
        return spaces.Dict([(k, decode(x, allow_pickle)) for k, x in value["spaces"]])
    if kind not in ("Discrete", "MultiDiscrete", "Box"):
        raise SpaceCodecError(f"{kind!r} is not a type of space that is known here.")
    dtype = np.dtype(value["dtype"])
    if kind == "Discrete":
        # Before Gymnasium 1.3 there was no other type.
        other = {} if dtype == np.int64 else {"dtype": dtype}
        return spaces.Discrete(value["n"], start=value["start"], **other)
    shape = value["shape"]
    if kind == "MultiDiscrete":
        nvec, start = (_array(value[x], dtype, shape) for x in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype, start=start)
    low, high = (_array(value[x], dtype, shape) for x in ("low", "high"))
    space = spaces.Box(low, high, dtype=dtype)
    # Integer bounds do not show whether they are meant as bounds.
    space.bounded_below = _array(value["bounded_below"], bool, shape)
    space.bounded_above = _array(value["bounded_above"], bool, shape)
    return space


def _unpickle(value: dict[str, Any], allow_pickle: bool) -> spaces.Space:
    """Unpickle a space, if that is allowed."""
    name = value["of"]
    if not allow_pickle:
        raise SpaceCodecError(
            f"the space {name} is pickled, which may run any code when it is read; "
            "give allow_pickle=True if you trust it."
        )
    try:
        return pickle.loads(base64.b85decode(value["data"]))
    except Exception as error:  # From the class of the space.
        raise SpaceCodecError(f"the space {name} cannot be read: {error}.") from error


def _values(array: np.ndarray) -> Any:
    """Convert an array to a list of numbers, or to one number if all are equal."""
    flat = array.ravel()
    same = flat.tobytes() == flat[:1].tobytes() * flat.size
    numbers = [_number(x) for x in flat[: 1 if same else None].tolist()]
    return numbers[0] if same and numbers else numbers


def _number(value: Any) -> Any:
    """Return a number that JSON can represent, or the name of an infinity."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if finite else str(value)


def _array(values: Any, dtype: Any, shape: list[int]) -> np.ndarray:
    """Convert the result of `_values` back to an array."""
    flat = np.array(values, dtype)
    return np.broadcast_to(
        flat if flat.ndim == 0 else flat.reshape(shape), shape
    ).copy()
