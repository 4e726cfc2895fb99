"""Checkpoints: directories that appear whole or not at all."""

import json
import os
import pathlib
import shutil
from typing import Any

import tensorflow as tf


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged or of another model, in one line."""


class Checkpoints:
    """Numbered checkpoints `step-000000050000` in one directory.

    Each holds the variables of the trackables and `state.json`. It is written under
    another name, flushed to disk and then renamed, so that a process killed at any
    moment leaves the last complete one readable.
    """

    def __init__(self, directory: str | pathlib.Path, keep: int = 5) -> None:
        """Keep the newest `keep` checkpoints."""
        self._directory = pathlib.Path(directory)
        self._keep = keep

    def names(self) -> list[str]:
        """Complete checkpoints, oldest first."""
        return sorted(self._paths())

    def save(self, step: int, trackables: dict[str, Any], state: dict) -> str:
        """Write a checkpoint and delete those that are too old; returns its name."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._sweep()
        name = f"step-{step:012d}"
        path, partial = self._directory / name, self._directory / f".writing-{name}"
        partial.mkdir()
        tf.train.Checkpoint(**trackables).write(str(partial / "variables"))
        (partial / "state.json").write_text(json.dumps(state))
        for file in (*partial.iterdir(), partial):
            _flush(file)
        if path.exists():
            path.rename(self._directory / f".replaced-{name}")
        partial.rename(path)
        _flush(self._directory)
        paths = self._paths()
        for old in self.names()[: -self._keep]:
            paths[old].rename(self._directory / f".deleting-{old}")
        self._sweep()
        return name

    def restore(self, trackables: dict[str, Any], name: str | None = None) -> dict:
        """Load a checkpoint, by default the newest; returns its state.

        Raises:
          CheckpointError: if it does not exist or does not fit the trackables.
        """
        paths = self._paths()
        if not paths:
            raise CheckpointError(f"no checkpoint in {self._directory}.")
        name = name or max(paths)
        if name not in paths:
            raise CheckpointError(
                f"no checkpoint {name!r} in {self._directory}; "
                f"there are {', '.join(sorted(paths))}."
            )
        path = paths[name]
        try:
            status = tf.train.Checkpoint(**trackables).read(str(path / "variables"))
            status.assert_consumed()
            return json.loads((path / "state.json").read_text())
        except (*_UNREADABLE, tf.errors.OpError) as error:
            reason = str(error).strip().split("\n")[0].partition(". Showing")[0]
            raise CheckpointError(
                f"checkpoint {path} does not fit this config: {reason}"
            ) from error

    def _paths(self) -> dict[str, pathlib.Path]:
        """Complete checkpoints by name; replaced ones until the new one is there."""
        replaced = self._directory.glob(".replaced-step-*")
        paths = {path.name.removeprefix(".replaced-"): path for path in replaced}
        return paths | {path.name: path for path in self._directory.glob("step-*")}

    def _sweep(self) -> None:
        """Delete what is hidden, so that nothing is ever seen half deleted."""
        complete = self._paths().values()
        for path in self._directory.glob(".*-step-*"):
            if path not in complete:
                shutil.rmtree(path)


# What TensorFlow and the parser of JSON raise for damaged files, besides OpError.
_UNREADABLE = (OSError, ValueError, AssertionError, IndexError)


def _flush(path: pathlib.Path) -> None:
    """Make sure that a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
