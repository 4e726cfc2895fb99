"""Checkpoints: directories that appear whole or not at all."""

import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import keras
import numpy as np
import tensorflow as tf

MEMORY = "memory"
"""Name of what only training needs; it is in files of its own."""

BLOCK_BYTES = 1 << 22
"""Variables that are larger are saved in files of this size."""


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged or of another model, in one line."""


class Checkpoints:
    """Numbered checkpoints `step-000000050000` in one directory.

    Each holds the variables of the trackables and `state.json`. It is written under
    another name, flushed to disk and then renamed, so that a process killed at any
    moment leaves the last complete one readable.

    Trackables are a mapping with mappings, lists and tuples in it. A Keras layer there
    stands for all its variables. A `tf.Variable` there that is larger than
    `BLOCK_BYTES` is cut into blocks, files that are named by their content; those that
    the newest checkpoint has, too, are hard links to its files. So only what changed is
    written, and no checkpoint needs another one.

    Attributes:
      directory: Where they are.
      keep: How many of them.
    """

    def __init__(self, directory: str | pathlib.Path, keep: int = 5) -> None:
        """Keep the newest `keep` checkpoints."""
        self.directory = pathlib.Path(directory)
        self.keep = keep

    def names(self) -> list[str]:
        """Complete checkpoints, oldest first."""
        return sorted(self._paths())

    def save(self, step: int, trackables: dict[str, Any], state: dict) -> str:
        """Write a checkpoint and delete those that are too old; returns its name."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._sweep()
        name = f"step-{step:012d}"
        path, partial = self.directory / name, self.directory / f".writing-{name}"
        newest = max(self._paths().items(), default=(None, partial))[1]
        partial.mkdir()
        files, large = _separate(trackables)
        for file, variables in files.items():
            tf.train.Checkpoint(**variables).write(str(partial / file))
        blocks = {key: _write(large[key], partial, newest) for key in large}
        (partial / "blocks.json").write_text(json.dumps(blocks))
        (partial / "state.json").write_text(json.dumps(state))
        for file in partial.iterdir():
            if file.stat().st_nlink < 2:  # The others are on disk already.
                _flush(file)
        _flush(partial)
        if path.exists():
            path.rename(self.directory / f".replaced-{name}")
        partial.rename(path)
        _flush(self.directory)
        paths = self._paths()
        for old in self.names()[: -self.keep]:
            paths[old].rename(self.directory / f".deleting-{old}")
        self._sweep()
        return name

    def restore(
        self, trackables: dict[str, Any], name: str | None = None, memory: bool = True
    ) -> dict:
        """Load a checkpoint, by default the newest; returns its state.

        Without `memory`, everything that is under this name stays as it is, and nothing
        of it is read.

        Raises:
          CheckpointError: if it does not exist or does not fit the trackables.
        """
        paths = self._paths()
        if not paths:
            raise CheckpointError(f"no checkpoint in {self.directory}.")
        name = name or max(paths)
        if name not in paths:
            raise CheckpointError(
                f"no checkpoint {name!r} in {self.directory}; "
                f"there are {', '.join(sorted(paths))}."
            )
        path = paths[name]
        try:
            _restore(path, trackables, memory)
            return json.loads((path / "state.json").read_text())
        except CheckpointError:
            raise
        except (*_UNREADABLE, tf.errors.OpError) as error:
            reason = str(error).strip().split("\n")[0].partition(". Showing")[0]
            raise CheckpointError(
                f"checkpoint {path} does not fit this config: {reason}"
            ) from error

    def _paths(self) -> dict[str, pathlib.Path]:
        """Complete checkpoints by name; replaced ones until the new one is there."""
        replaced = self.directory.glob(".replaced-step-*")
        paths = {path.name.removeprefix(".replaced-"): path for path in replaced}
        return paths | {path.name: path for path in self.directory.glob("step-*")}

    def _sweep(self) -> None:
        """Delete what is hidden, so that nothing is ever seen half deleted."""
        complete = self._paths().values()
        for path in self.directory.glob(".*-step-*"):
            if path not in complete:
                shutil.rmtree(path)


# What TensorFlow and the parser of JSON raise for damaged files, besides OpError.
_UNREADABLE = (OSError, ValueError, AssertionError, LookupError)


def _separate(trackables: dict[str, Any]) -> tuple[dict[str, dict], dict[str, Any]]:
    """What TensorFlow saves, by file, and the large variables, by path."""
    large: dict[str, tf.Variable] = {}
    tree = _without_large(trackables, "", large)
    memory = {MEMORY: tree.pop(MEMORY)} if MEMORY in tree else {}
    return {"variables": tree, MEMORY: memory}, large


def _without_large(node: Any, path: str, large: dict[str, tf.Variable]) -> Any:
    """Move the large variables of nested structures into a dict.

    Sequences become mappings, so that the others keep their names.
    """
    if isinstance(node, keras.layers.Layer):
        node = node.variables
    if isinstance(node, (list, tuple)):
        node = dict(enumerate(node))
    if not isinstance(node, dict):
        return node
    rest = {}
    for key, child in node.items():
        if isinstance(child, tf.Variable) and _num_bytes(child) > BLOCK_BYTES:
            large[f"{path}{key}"] = child
        else:
            rest[str(key)] = _without_large(child, f"{path}{key}/", large)
    return rest


def _num_bytes(variable: tf.Variable) -> int:
    """Size of numbers, zero where it is not known."""
    if variable.dtype == tf.string:
        return 0
    return (variable.shape.num_elements() or 0) * variable.dtype.size


def _type(variable: tf.Variable) -> str:
    return f"{variable.dtype.name} {variable.shape.as_list()}"


def _write(
    variable: tf.Variable, directory: pathlib.Path, newest: pathlib.Path
) -> dict[str, Any]:
    """Save a large variable; returns what `blocks.json` says of it."""
    # Without a copy, which `read_value` makes where parts were assigned. Nor may the
    # value be kept, or the next one to assign a part would make it.
    value = variable.read_value_no_copy()
    length = value.shape[0]
    rows = max(length * BLOCK_BYTES // _num_bytes(variable), 1)
    names = []
    for start in range(0, length, rows):
        block = value[start : start + rows].numpy().reshape(-1).view(np.uint8)
        names.append(f"{_digest(block)}.block")
        file = directory / names[-1]
        if not (file.exists() or _link(newest / file.name, file, block.nbytes)):
            with file.open("xb") as opened:  # Never through a link.
                opened.write(block)
    return {"type": _type(variable), "blocks": names}


def _link(source: pathlib.Path, target: pathlib.Path, size: int) -> bool:
    """Make a link to a file if it is there, whole, and links are possible."""
    try:
        if source.stat().st_size != size:
            return False
        os.link(source, target)
    except OSError:
        return False
    return True


def _digest(block: np.ndarray) -> str:
    return hashlib.sha1(block, usedforsecurity=False).hexdigest()


def _restore(path: pathlib.Path, trackables: dict[str, Any], memory: bool) -> None:
    """Load what `save` made of trackables; raises if anything is left over."""
    files, large = _separate(trackables)
    saved = json.loads((path / "blocks.json").read_text())
    if not memory:
        del files[MEMORY]
        large, saved = (
            {key: x[key] for key in x if key.partition("/")[0] != MEMORY}
            for x in (large, saved)
        )
    for key in sorted(large.keys() | saved.keys()):
        there = saved[key]["type"] if key in saved else "small or missing"
        here = _type(large[key]) if key in large else "small or missing"
        if there != here:
            raise ValueError(f"{key} is {there} there, but {here} here.")
    for file, variables in files.items():
        tf.train.Checkpoint(**variables).read(str(path / file)).assert_consumed()
    for key, variable in large.items():
        _read(variable, path, saved[key]["blocks"])


def _read(variable: tf.Variable, directory: pathlib.Path, names: list[str]) -> None:
    """Load a large variable block by block, in place."""
    start = 0
    for name in names:
        value = _read_block(directory / name).view(variable.dtype.as_numpy_dtype)
        value = value.reshape([-1, *variable.shape[1:]])
        rows = tf.range(start, start + len(value))
        variable.scatter_update(tf.IndexedSlices(value, rows))
        start += len(value)
    # From now on reading copies, since parts were assigned; this ends it.
    variable.read_value_no_copy()


def _read_block(file: pathlib.Path) -> np.ndarray:
    """Bytes of a block, which must be those that were saved."""
    try:
        block = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        block = np.zeros([0], np.uint8)
    if file.stem != _digest(block):
        raise CheckpointError(
            f"checkpoint {file.parent} is damaged: {file.name} is missing or has "
            "changed; delete the checkpoint to go on from the one before."
        )
    return block


def _flush(path: pathlib.Path) -> None:
    """Make sure that a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
