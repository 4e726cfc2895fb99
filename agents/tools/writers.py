"""Where reports go: JSON lines always, TensorBoard, optionally Weights & Biases."""

import json
import pathlib
from typing import Any

from agents.tools import config


class JsonLines:
    """A file of one JSON object per line, flushed line by line."""

    def __init__(self, filename: str | pathlib.Path, offset: int = 0) -> None:
        """Continue behind `offset` bytes; what is there beyond is cut off."""
        path = pathlib.Path(filename)
        path.touch()
        self._file = path.open("r+", encoding="utf-8")
        self._file.truncate(min(offset, path.stat().st_size))
        self._file.seek(0, 2)

    def write(self, values: dict[str, Any]) -> None:
        """Append one object."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def offset(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Scalars over environment steps, one event writer per phase."""

    def __init__(self, logdir: str | pathlib.Path) -> None:
        self._logdir = pathlib.Path(logdir)
        self._writers = {}

    def write(self, phase: str, step: int, scalars: dict[str, float]) -> None:
        """Write scalars of one report."""
        import tensorflow as tf

        if phase not in self._writers:
            directory = str(self._logdir / phase)
            self._writers[phase] = tf.summary.create_file_writer(directory)
        with self._writers[phase].as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writers[phase].flush()

    def close(self) -> None:
        """Close all event files."""
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases:
    """Scalars over environment steps, in one resumable run."""

    def __init__(self, logdir: str | pathlib.Path, project: str) -> None:
        try:
            import wandb
        except ImportError as error:
            raise config.ConfigError(
                "train.wandb needs the extra: pip install 'agents[wandb]'."
            ) from error
        name = pathlib.Path(logdir).name
        self._run = wandb.init(project=project, id=name, name=name, resume="allow")
        self._run.define_metric("*", step_metric="step")

    def write(self, phase: str, step: int, scalars: dict[str, float]) -> None:
        """Write scalars of one report."""
        named = {f"{phase}/{name}": value for name, value in scalars.items()}
        self._run.log({"step": step, **named})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
