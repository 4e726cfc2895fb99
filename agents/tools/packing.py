"""Structures of tensors as few tensors, one for each dtype.

What TensorFlow does with a tensor of some numbers costs by the tensor. So what many
small leaves have in common, being written to variables for example, is done once.
"""

import math
from typing import Any

import tensorflow as tf

from agents.tools import spaces


class Packing:
    """Leaves `[..., *shape]` of one dtype side by side, `[..., width]`.

    Booleans become float32, zero or one. A leaf that is alone keeps its shape.

    Attributes:
      specs: `tf.TensorSpec` of each packed tensor, without leading dimensions.
    """

    def __init__(self, specs: Any) -> None:
        """Take a structure (dicts and tuples) of `tf.TensorSpec`."""
        self._structure = specs
        self._leaves = spaces.flatten(specs)
        self._groups: dict[tf.DType, list[int]] = {}
        for index, spec in enumerate(self._leaves):
            self._groups.setdefault(_dtype(spec), []).append(index)
        self.specs = []
        for dtype, group in self._groups.items():
            shape = [sum(self._size(index) for index in group)]
            if len(group) == 1:
                shape = self._leaves[group[0]].shape
            self.specs.append(tf.TensorSpec(shape, dtype))

    def pack(self, structure: Any) -> list[tf.Tensor]:
        """Packed tensors of a structure of tensors `[..., *shape]`."""
        leaves = spaces.flatten(structure)
        return [
            self._join([leaves[index] for index in group], group, dtype)
            for dtype, group in self._groups.items()
        ]

    def unpack(self, packed: list[tf.Tensor]) -> Any:
        """The structure of packed tensors `[..., width]`."""
        leaves: list = [None] * len(self._leaves)
        for tensor, group in zip(packed, self._groups.values(), strict=True):
            tensor = tf.convert_to_tensor(tensor)
            parts = [tensor]
            if len(group) > 1:
                parts = tf.split(tensor, [self._size(index) for index in group], -1)
            for part, index in zip(parts, group, strict=True):
                spec = self._leaves[index]
                if len(group) > 1 and spec.shape.rank != 1:
                    leading = _leading(part, 1)
                    part = tf.reshape(part, tf.concat([leading, spec.shape], 0))
                if spec.dtype == tf.bool:
                    part = part > 0
                leaves[index] = part
        return spaces.unflatten(self._structure, leaves)

    def _join(self, leaves: list, group: list[int], dtype: tf.DType) -> tf.Tensor:
        """Leaves of one dtype as one tensor."""
        leaves = [tf.cast(leaf, dtype) for leaf in leaves]
        if len(leaves) == 1:
            return leaves[0]
        columns = []
        for leaf, index in zip(leaves, group, strict=True):
            rank = self._leaves[index].shape.rank
            if rank == 0:
                leaf = leaf[..., tf.newaxis]
            elif rank > 1:
                shape = tf.concat([_leading(leaf, rank), [self._size(index)]], 0)
                leaf = tf.reshape(leaf, shape)
            columns.append(leaf)
        return tf.concat(columns, -1)

    def _size(self, index: int) -> int:
        return math.prod(self._leaves[index].shape)


def _dtype(spec: tf.TensorSpec) -> tf.DType:
    return tf.float32 if spec.dtype == tf.bool else spec.dtype


def _leading(tensor: tf.Tensor, rank: int) -> Any:
    """All dimensions but the last `rank`, known ones if possible."""
    shape = tensor.shape[: tensor.shape.rank - rank]
    return shape if shape.is_fully_defined() else tf.shape(tensor)[:-rank]
