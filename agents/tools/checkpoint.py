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
        return sorted(path.name for path in self._directory.glob("step-*"))

    def save(self, step: int, trackables: dict[str, Any], state: dict) -> str:
        """Write a checkpoint and delete those that are too old; returns its name."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for stale in self._directory.glob(".writing-*"):
            shutil.rmtree(stale)
        name = f"step-{step:012d}"
        partial = self._directory / f".writing-{name}"
        partial.mkdir()
        tf.train.Checkpoint(**trackables).write(str(partial / "variables"))
        (partial / "state.json").write_text(json.dumps(state))
        for path in (*partial.iterdir(), partial):
            _flush(path)
        if (self._directory / name).exists():
            shutil.rmtree(self._directory / name)
        partial.rename(self._directory / name)
        _flush(self._directory)
        for old in self.names()[: -self._keep]:
            shutil.rmtree(self._directory / old)
        return name

    def restore(self, trackables: dict[str, Any], name: str | None = None) -> dict:
        """Load a checkpoint, by default the newest; returns its state.

        Raises:
          CheckpointError: if it does not exist or does not fit the trackables.
        """
        names = self.names()
        if not names:
            raise CheckpointError(f"no checkpoint in {self._directory}.")
        name = name or names[-1]
        if name not in names:
            raise CheckpointError(
                f"no checkpoint {name!r} in {self._directory}; "
                f"there are {', '.join(names)}."
            )
        path = self._directory / name
        try:
            status = tf.train.Checkpoint(**trackables).read(str(path / "variables"))
            status.assert_consumed()
            return json.loads((path / "state.json").read_text())
        except (OSError, ValueError, AssertionError, tf.errors.OpError) as error:
            reason = str(error).strip().split("\n")[0]
            raise CheckpointError(
                f"checkpoint {path} does not fit this config: {reason}"
            ) from error


def _flush(path: pathlib.Path) -> None:
    """Make sure that a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
