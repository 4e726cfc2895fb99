"""Writers of reports: JSON lines, TensorBoard and Weights & Biases."""

import json
import logging
import os
import pathlib
import uuid
from typing import Any

from agents.tools import config, errors, files

_NOTES = logging.getLogger(__name__)


class JsonLines:
    """Writer of a file with one JSON object per line, each written as a whole."""

    def __init__(self, filename: str | pathlib.Path, offset: int = 0) -> None:
        """Continue after `offset` bytes; later content is cut off.

        If there are fewer bytes of whole lines, a warning is logged.
        """
        self._path = pathlib.Path(filename)
        if not self._path.exists():
            self._path.touch()
            files.flush(self._path.parent)
        self._size = files.cut(self._path, offset)
        if self._size < offset:
            _NOTES.warning(
                "%s has lost reports: it goes on behind its first %d bytes instead of "
                "%d, which are not there or end within a line.",
                *(self._path, self._size, offset),
            )
        self._file = self._path.open("ab", buffering=0)

    def write(self, values: dict[str, Any]) -> None:
        """Append one object; raise WriteError, and append nothing, on failure."""
        line = f"{json.dumps(values)}\n".encode()
        rest = line
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.truncate(self._size)
            needs = files.size(len(line))
            raise files.write_error(self._path, error, needs) from error
        self._size += len(line)

    def offset(self) -> int:
        """Flush to disk; return the number of bytes written so far."""
        os.fsync(self._file.fileno())
        return self._size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Writer of scalars over environment steps, with one event file per phase."""

    def __init__(self, logdir: str | pathlib.Path) -> None:
        self._logdir = pathlib.Path(logdir)
        self._writers = {}

    def write(self, phase: str, step: int, scalars: dict[str, float]) -> None:
        """Write scalars of one report; raise WriteError on failure."""
        import tensorflow as tf

        directory = self._logdir / phase
        try:
            if phase not in self._writers:
                self._writers[phase] = tf.summary.create_file_writer(str(directory))
            with self._writers[phase].as_default(step):
                for name, value in scalars.items():
                    tf.summary.scalar(name, value)
            self._writers[phase].flush()
        except tf.errors.OpError as error:
            raise files.write_error(directory, error, "a few kB") from error

    def close(self) -> None:
        """Close all event files."""
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases:
    """Writer of scalars over environment steps, in one resumable run.

    Its id is in the file `wandb.txt`, so directories with equal names stay apart.
    """

    def __init__(self, logdir: str | pathlib.Path, project: str) -> None:
        """Begin a run, or continue that of the directory; ConfigError if refused."""
        try:
            import wandb
        except ImportError as error:
            raise config.ConfigError(
                "train.wandb needs the extra: pip install 'agents-in-graph[wandb]'."
            ) from error
        path = pathlib.Path(logdir) / "wandb.txt"
        if not path.exists():
            files.write(path, f"{uuid.uuid4().hex}\n")
        names = {"id": path.read_text().strip(), "name": path.parent.name}
        with errors.framed("config key 'train.wandb'", config.ConfigError):
            self._run = wandb.init(project=project, **names, resume="allow")
            self._run.define_metric("*", step_metric="step")

    def write(self, phase: str, step: int, scalars: dict[str, float]) -> None:
        """Write scalars of one report."""
        named = {f"{phase}/{name}": value for name, value in scalars.items()}
        self._run.log({"step": step, **named})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
