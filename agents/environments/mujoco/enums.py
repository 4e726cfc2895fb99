"""Equality of MuJoCo's joint types and NumPy's integers.

Since MuJoCo 3.12, `mjtJoint.mjJNT_SLIDE == model.jnt_type[0]` is false, although it is
true with the sides exchanged. `in` compares this way around, so gymnasium-robotics 1.4.2
takes every joint for one of an unknown type.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


@functools.cache
def repair() -> None:
    """Let joint types equal the same NumPy integers in this process, as before 3.12."""
    import mujoco

    kind = mujoco.mjtJoint
    if kind.mjJNT_SLIDE == np.int32(kind.mjJNT_SLIDE.value):
        return
    for name in ("__eq__", "__ne__"):
        setattr(kind, name, _with_python_integers(getattr(kind, name)))


def _with_python_integers(compare: Callable[[Any, Any], Any]) -> Callable:
    """Convert the right side of a comparison from a NumPy integer, if it is one."""

    def compared(one: Any, other: Any) -> Any:
        return compare(one, int(other) if isinstance(other, np.integer) else other)

    return compared
