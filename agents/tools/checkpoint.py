"""Checkpoints: directories that appear whole or not at all."""

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agents.tools import errors, files

MEMORY = "memory"
"""Name of variables that only training needs; they have files of their own."""

BLOCK_BYTES = 1 << 22
"""Size in bytes above which a variable is saved in blocks of this size."""


SUMS = "sha1sums"
"""File with the hashes of the JSON files, in the format of `sha1sum --check`."""


PAGE = 4096
"""Granularity of file sizes on disk, in bytes."""


BEST = "best"
"""Name that stands for the checkpoint with the best score."""


NAME = r"step-\d{12,}"
"""Pattern of the names of checkpoints; see `name_of`."""


class CheckpointError(errors.Mistake):
    """Checkpoint that is missing, damaged or of another model."""


class Checkpoints:
    """Numbered checkpoints `step-000000050000` in one directory.

    Each holds the variables of the trackables and `state.json`. It is written under
    another name, flushed to disk and then renamed, so that a process killed at any
    moment leaves the last complete one readable. Other processes may read at any time.

    Trackables are nested mappings, lists and tuples. A Keras layer stands for all of
    its variables. A `tf.Variable` larger than `BLOCK_BYTES` is split into files, its
    blocks, named by their hash. A block that the newest checkpoint also has becomes a
    hard link to that file. So only changed blocks are written, and no checkpoint
    depends on another. One may be marked as the best and is kept however old it is; the
    symbolic link `best` points to it. Where a copy of the directory has followed the
    link, `best` is a checkpoint of its own, until another one is marked.

    Attributes:
      directory: Directory of the checkpoints.
      keep: Number of checkpoints to keep.
    """

    def __init__(self, directory: str | pathlib.Path, keep: int = 5) -> None:
        """Open a directory of which the newest `keep` checkpoints are kept."""
        self.directory = pathlib.Path(directory)
        self.keep = keep

    def names(self) -> list[str]:
        """Return the names of complete checkpoints, oldest first."""
        return sorted(self._paths())

    def save(
        self,
        step: int,
        trackables: dict[str, Any],
        state: dict,
        best: str | None = None,
    ) -> str:
        """Write a checkpoint, delete the oldest ones, and return its name.

        Args:
          step: Number in the name.
          trackables: Variables by name.
          state: JSON values.
          best: Name of the best checkpoint, this one or another.

        Raises:
          WriteError: if it cannot be written; existing checkpoints stay.
        """
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            files.flush(self.directory.parent)
        self._sweep()
        name = name_of(step)
        path, partial = self.directory / name, self.directory / f".writing-{name}"
        newest = max(self._paths().items(), default=(None, partial))[1]
        try:
            _save(partial, trackables, state, newest)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            needs = files.size(_num_new_bytes(trackables, newest))
            raise files.write_error(path, error, needs) from error
        if path.exists():
            path.rename(self.directory / f".replaced-{name}")
        partial.rename(path)
        files.flush(self.directory)
        if best is not None:
            self.mark(best)
        paths = self._paths()
        for old in self.names()[: -self.keep]:
            if old != best:
                paths[old].rename(self.directory / f".deleting-{old}")
        self._sweep()
        return name

    def mark(self, name: str) -> None:
        """Point the link `best` to a checkpoint, if the file system has links."""
        new, best = self.directory / f".{BEST}", self.directory / BEST
        with contextlib.suppress(OSError):
            if _is_copy(best):
                best.rename(self.directory / f".deleting-{name}")
                self._sweep()
            new.unlink(missing_ok=True)
            new.symlink_to(name)
            new.replace(best)

    def restore(
        self, trackables: dict[str, Any], name: str | None = None, memory: bool = True
    ) -> dict:
        """Load a checkpoint, by default the newest, and return its state.

        Without `memory`, variables under that name are neither read nor changed.

        Raises:
          CheckpointError: if it does not exist, is damaged, or does not fit the
            trackables.
        """
        return self._read(lambda path: _restore(path, trackables, memory), name)

    def state(self, name: str | None = None) -> dict:
        """Return the state in a checkpoint, by default the newest, without variables.

        Raises:
          CheckpointError: if it does not exist or is damaged.
        """
        return self._read(lambda path: _json(path, "state.json"), name)

    def _read(self, function: Callable[[pathlib.Path], Any], name: str | None) -> Any:
        """Call a function with a checkpoint's path; repeat if the path was replaced."""
        while True:
            path = self._find(name)
            before, problem = _identity(path), None
            try:
                result = function(path)
            except CheckpointError as error:
                problem = error
            except OSError as error:
                problem = CheckpointError(f"cannot read checkpoint {path}: {error}.")
            if before and before == _identity(path):
                if problem:
                    raise problem
                return result

    def _find(self, name: str | None) -> pathlib.Path:
        """Return the path of a checkpoint or the newest; raises CheckpointError."""
        paths = self._paths()
        if not paths:
            raise CheckpointError(f"no checkpoint in {self.directory}.")
        name, best = name or max(paths), self.directory / BEST
        asked = name
        if name == BEST and _is_copy(best):
            return best
        if name == BEST:
            name = os.path.basename(best.resolve())
        if name not in paths:
            known = sorted(paths) + [BEST] * best.exists()
            link = f"{BEST} -> " * (asked == BEST and best.is_symlink())
            raise CheckpointError(
                f"no checkpoint '{link}{name}' in {self.directory}; "
                f"there are {', '.join(known)}."
            )
        return paths[name]

    def _paths(self) -> dict[str, pathlib.Path]:
        """Map names to complete checkpoints, including those about to be replaced."""
        replaced = self._entries(".replaced-")
        paths = {path.name.removeprefix(".replaced-"): path for path in replaced}
        return paths | {path.name: path for path in self._entries("")}

    def _entries(self, prefix: str) -> list[pathlib.Path]:
        """List what has this prefix and the name of a checkpoint, but no other files."""
        found = self.directory.glob(f"{prefix}step-*")
        pattern = re.escape(prefix) + NAME
        return [path for path in found if re.fullmatch(pattern, path.name)]

    def _sweep(self) -> None:
        """Delete hidden leftovers, so that no checkpoint is ever half deleted."""
        complete = self._paths().values()
        for prefix in (".writing-", ".replaced-", ".deleting-"):
            for path in self._entries(prefix):
                if path not in complete:
                    shutil.rmtree(path)


def name_of(step: int) -> str:
    """Return the name of the checkpoint at an environment step."""
    return f"step-{step:012d}"


def variables(node: Any, path: str = "") -> dict[str, tf.Variable]:
    """Return variables of nested structures of trackable objects, by path."""
    if isinstance(node, keras.layers.Layer):
        node = node.variables
    if isinstance(node, keras.Variable):
        node = node.value
    if isinstance(node, tf.Variable):
        return {path: node}
    if isinstance(node, Mapping):
        items = node.items()
    elif isinstance(node, list | tuple):
        items = enumerate(node)
    else:
        found = attributes(node).items()
        return {f"{path}/{name}".strip("/"): variable for name, variable in found}
    return {
        key: variable
        for name, child in items
        for key, variable in variables(child, f"{path}/{name}".strip("/")).items()
    }


def attributes(trackable: Any) -> dict[str, tf.Variable]:
    """Return variables of an object by their shortest paths of attributes."""
    view, known, found = tf.train.TrackableView(trackable), {}, {}
    waiting = collections.deque([("", trackable)])
    while waiting:
        path, node = waiting.popleft()
        if id(node) in known:
            continue
        known[id(node)] = node  # Keep it, so that its id stays unique.
        if isinstance(node, keras.Variable):
            node = node.value
        if isinstance(node, tf.Variable):
            found[path] = node
            continue
        for name, child in view.children(node).items():
            waiting.append((f"{path}/{name}".strip("/"), child))
    return found


def forgotten(owner: Any) -> list[str]:
    """Return the names of trainable weights of layers that `persistent()` leaves out."""
    held = {id(x) for x in variables(owner.persistent()).values()}
    nodes = tf.train.TrackableView(owner).descendants()
    layers = [x for x in nodes if isinstance(x, keras.layers.Layer)]
    weights = [x for layer in layers for x in layer.trainable_variables]
    names = {id(x.value): x.path for x in weights}  # Layers may contain layers.
    return [name for key, name in names.items() if key not in held]


def _is_copy(best: pathlib.Path) -> bool:
    """Return whether `best` is a directory, as in copies that have followed links."""
    return best.is_dir() and not best.is_symlink()


def _save(
    path: pathlib.Path, trackables: dict[str, Any], state: dict, newest: pathlib.Path
) -> None:
    """Write a checkpoint into a new directory and flush it to disk."""
    path.mkdir()
    small, large = _separate(trackables)
    for file, variables in small.items():
        tf.train.Checkpoint(**variables).write(str(path / file))
    blocks = {key: _write(large[key], path, newest) for key in large}
    sums = ""
    for file, value in {"blocks.json": blocks, "state.json": state}.items():
        text = json.dumps(value)
        (path / file).write_text(text)
        sums += f"{_digest(text.encode())}  {file}\n"
    (path / SUMS).write_text(sums)
    for file in path.iterdir():
        if file.stat().st_nlink < 2:  # Links are on disk already.
            files.flush(file)
    files.flush(path)


def _num_new_bytes(trackables: dict[str, Any], newest: pathlib.Path) -> int:
    """Return the bytes of a new checkpoint without blocks that can be linked."""
    small, large = _separate(trackables)
    directory = "ram://checkpoint"  # TensorFlow's memory, to measure file sizes.
    tf.io.gfile.makedirs(directory)
    for file, variables in small.items():
        tf.train.Checkpoint(**variables).write(f"{directory}/{file}")
    names = tf.io.gfile.listdir(directory)
    sizes = [tf.io.gfile.stat(f"{directory}/{name}").length for name in names]
    tf.io.gfile.rmtree(directory)
    blocks = {
        name: block.nbytes
        for variable in large.values()
        for name, block in _blocks(variable)
        if not (newest / name).exists()
    }
    sizes += [*blocks.values(), 1, 1, 1, 1]  # And JSON files and the directory.
    return sum(-(-size // PAGE) * PAGE for size in sizes)


def _identity(path: pathlib.Path) -> Any:
    """Return a value that changes when another directory replaces this one."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


def _separate(trackables: dict[str, Any]) -> tuple[dict[str, dict], dict[str, Any]]:
    """Split trackables into TensorFlow's, by file, and large variables, by path."""
    large: dict[str, tf.Variable] = {}
    tree = _without_large(trackables, "", large)
    memory = {MEMORY: tree.pop(MEMORY)} if MEMORY in tree else {}
    return {"variables": tree, MEMORY: memory}, large


def _without_large(node: Any, path: str, large: dict[str, tf.Variable]) -> Any:
    """Move large variables of nested structures into a dict.

    Sequences become mappings, so that other variables keep their names.
    """
    if isinstance(node, keras.layers.Layer):
        node = node.variables
    if isinstance(node, (list, tuple)):
        node = dict(enumerate(node))
    if isinstance(node, np.ndarray | np.generic | int | float | str | bytes):
        raise CheckpointError(
            f"{path[:-1]} of a checkpoint is of type {type(node).__name__}, which would "
            "not be restored; use variables."
        )
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
    """Return the bytes of a numeric variable, zero if unknown."""
    if variable.dtype == tf.string:
        return 0
    return (variable.shape.num_elements() or 0) * variable.dtype.size


def _type(variable: tf.Variable) -> str:
    return f"{variable.dtype.name} {variable.shape.as_list()}"


def _write(
    variable: tf.Variable, directory: pathlib.Path, newest: pathlib.Path
) -> dict[str, Any]:
    """Save a large variable; return its entry in `blocks.json`."""
    names = []
    for name, block in _blocks(variable):
        names.append(name)
        file = directory / name
        if not (file.exists() or _link(newest / name, file, block.nbytes)):
            with file.open("xb") as opened:  # Never through a link.
                opened.write(block)
    return {"type": _type(variable), "blocks": names}


def _blocks(variable: tf.Variable) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the file name and the bytes of each block of a large variable."""
    # `read_value` would copy a variable whose parts were assigned. The value must not
    # be kept either, or the next assignment of a part would copy.
    value = variable.read_value_no_copy()
    length = value.shape[0]
    rows = max(length * BLOCK_BYTES // _num_bytes(variable), 1)
    for start in range(0, length, rows):
        block = value[start : start + rows].numpy().reshape(-1).view(np.uint8)
        yield f"{_digest(block)}.block", block


def _link(source: pathlib.Path, target: pathlib.Path, size: int) -> bool:
    """Link to a file if it exists with this size and links are possible."""
    try:
        if source.stat().st_size != size:
            return False
        os.link(source, target)
    except OSError:
        return False
    return True


def _digest(block: np.ndarray | bytes) -> str:
    return hashlib.sha1(block, usedforsecurity=False).hexdigest()


def _restore(path: pathlib.Path, trackables: dict[str, Any], memory: bool) -> dict:
    """Load a checkpoint written by `_save`; return its state."""
    state, saved = _json(path, "state.json"), _json(path, "blocks.json")
    small, large = _separate(trackables)
    if not memory:
        del small[MEMORY]
        large, saved = (
            {key: x[key] for key in x if key.partition("/")[0] != MEMORY}
            for x in (large, saved)
        )
    for key in sorted(large.keys() | saved.keys()):
        there = saved[key]["type"] if key in saved else "small or missing"
        here = _type(large[key]) if key in large else "small or missing"
        if there != here:
            raise _misfit(path, f"{key} is {there} there, but {here} here.")
    with _plain(path) as plain:
        for file, variables in small.items():
            try:
                status = tf.train.Checkpoint(**variables).read(str(plain / file))
                status.assert_consumed()
            except _UNREADABLE as error:
                if not _is_whole(plain / file):
                    raise _damage(path, f"{file}.*") from error
                reason = str(error).strip().split("\n")[0].partition(". Showing")[0]
                raise _misfit(path, reason) from error
    for key, variable in large.items():
        _load(variable, path, saved[key]["blocks"])
    return state


@contextlib.contextmanager
def _plain(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path to a directory that TensorFlow does not read as a pattern."""
    if not set(str(path)) & set("[]?*\\"):
        yield path
        return
    with tempfile.TemporaryDirectory() as directory:
        link = pathlib.Path(directory) / "checkpoint"
        link.symlink_to(path.resolve())
        yield link


def _is_whole(prefix: pathlib.Path) -> bool:
    """Return whether the files of a TensorFlow checkpoint are readable."""
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except _UNREADABLE:
        return False
    return True


# Errors that TensorFlow raises for files that are damaged or do not fit.
_UNREADABLE = (ValueError, AssertionError, LookupError, tf.errors.OpError)


def _load(variable: tf.Variable, directory: pathlib.Path, names: list[str]) -> None:
    """Load a large variable block by block, in place."""
    start = 0
    for name in names:
        block = _bytes(directory / name)
        if f"{_digest(block)}.block" != name:
            raise _damage(directory, name)
        value = block.view(variable.dtype.as_numpy_dtype)
        value = value.reshape([-1, *variable.shape[1:]])
        rows = tf.range(start, start + len(value))
        variable.scatter_update(tf.IndexedSlices(value, rows))
        start += len(value)
    # Assigning parts makes later reads copy; this call ends that.
    variable.read_value_no_copy()


def _json(directory: pathlib.Path, name: str) -> dict:
    """Read a JSON file of a checkpoint; verify its hash."""
    content, sums = (_bytes(directory / x).tobytes() for x in (name, SUMS))
    if f"{_digest(content)}  {name}".encode() not in sums.splitlines():
        raise _damage(directory, name)
    return json.loads(content)


def _bytes(file: pathlib.Path) -> np.ndarray:
    """Read the bytes of a file, none if it is missing."""
    try:
        return np.fromfile(file, np.uint8)
    except FileNotFoundError:
        return np.zeros([0], np.uint8)


def _damage(path: pathlib.Path, name: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path} is damaged: {name} is missing or has changed; delete the "
        "checkpoint to go on from the one before."
    )


def _misfit(path: pathlib.Path, reason: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path} does not fit this config: {reason}")
