"""Storage of structures with small leaves as few arrays, for NumPy and TensorFlow.

The cost of moving an array between Python and the graph, or into a variable, depends on
the number of arrays rather than on bytes, so leaves are placed side by side. Only
functions on tensors import TensorFlow: worker processes do without it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.tools import spaces


class Layout:
    """Leaves `[..., *shape]` side by side in one array, `[..., width]`.

    Booleans become zero or one. A single leaf keeps its shape.

    Attributes:
      spec: Spec of the array, without leading dimensions.
      width: Number of columns.
    """

    def __init__(self, specs: Sequence[Any], dtype: Any = np.float32) -> None:
        """Create a layout of specs, with `shape` and `dtype`, for an array dtype."""
        self._shapes = [tuple(x.shape) for x in specs]
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self._flags = [x.dtype == bool for x in specs]
        self.width = sum(self._sizes)
        self._alone = len(specs) == 1
        shape = self._shapes[0] if self._alone else (self.width,)
        self.spec = spaces.Spec(shape, np.dtype(dtype))

    def split(self, array: Any) -> list:
        """Split an array into views, or a tensor or variable into tensors."""
        function = _views if isinstance(array, np.ndarray) else _tensors
        parts = function(array, self._sizes, self._shapes, self._alone)
        return [x > 0 if y else x for x, y in zip(parts, self._flags, strict=True)]

    def join(self, leaves: Sequence[Any]) -> Any:
        """Join leaves, which are tensors or arrays, into one tensor."""
        import tensorflow as tf

        leaves = [tf.cast(leaf, self.spec.dtype) for leaf in leaves]
        if self._alone:
            return leaves[0]
        columns = []
        for leaf, shape, size in zip(leaves, self._shapes, self._sizes, strict=True):
            if not shape:
                leaf = tf.expand_dims(leaf, -1)
            elif len(shape) > 1:
                leading = leaf.shape[: leaf.shape.rank - len(shape)]
                leaf = _reshape(leaf, leading, len(shape), [size])
            columns.append(leaf)
        return tf.concat(columns, -1)


class Packing:
    """Converter between a structure (dicts and tuples) and one tensor per dtype.

    Booleans become float32.

    Attributes:
      specs: `spaces.Spec` of each tensor, without leading dimensions.
    """

    def __init__(self, specs: Any) -> None:
        """Create a converter for a structure of `tf.TensorSpec` or `spaces.Spec`."""
        self._structure = specs
        leaves = spaces.flatten(specs)
        groups: dict[np.dtype, list[int]] = {}
        for index, spec in enumerate(leaves):
            groups.setdefault(_dtype(spec), []).append(index)
        self._groups = list(groups.values())
        self._layouts = [
            Layout([leaves[index] for index in group], dtype)
            for dtype, group in groups.items()
        ]
        self.specs = [layout.spec for layout in self._layouts]

    def pack(self, structure: Any) -> list:
        """Pack a structure of tensors `[..., *shape]`."""
        leaves = spaces.flatten(structure)
        return [
            layout.join([leaves[index] for index in group])
            for layout, group in zip(self._layouts, self._groups, strict=True)
        ]

    def unpack(self, packed: Sequence[Any]) -> Any:
        """Rebuild the structure from packed tensors `[..., width]`."""
        leaves = {}
        parts = zip(self._layouts, self._groups, packed, strict=True)
        for layout, group, array in parts:
            leaves |= zip(group, layout.split(array), strict=True)
        return spaces.unflatten(self._structure, [leaves[x] for x in sorted(leaves)])


def _views(array: np.ndarray, sizes, shapes, alone: bool) -> list[np.ndarray]:
    """Split an array into columns of the given shapes, as views."""
    if alone:
        return [array]
    column, result = 0, []
    for size, shape in zip(sizes, shapes, strict=True):
        view = array[..., column : column + size].view()
        view.shape = *array.shape[:-1], *shape  # Raises rather than copies.
        result.append(view)
        column += size
    return result


def _tensors(tensor: Any, sizes, shapes, alone: bool) -> list[Any]:
    """Split a tensor into columns of the given shapes."""
    import tensorflow as tf

    tensor = tf.convert_to_tensor(tensor)
    if alone:
        return [tensor]
    return [
        part if len(shape) == 1 else _reshape(part, part.shape[:-1], 1, shape)
        for part, shape in zip(tf.split(tensor, sizes, -1), shapes, strict=True)
    ]


def _reshape(tensor: Any, leading: Any, rank: int, shape: Sequence[int]) -> Any:
    """Replace the last `rank` dimensions of a tensor by others."""
    import tensorflow as tf

    if leading.is_fully_defined():
        return tf.reshape(tensor, [*leading, *shape])
    return tf.reshape(tensor, tf.concat([tf.shape(tensor)[:-rank], shape], 0))


def _dtype(spec: Any) -> np.dtype:
    """Return the storage dtype of leaves."""
    dtype = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))
    return np.dtype(np.float32) if dtype.kind == "b" else dtype
