"""Transitions in files, of any agent or script, to learn from later."""

import pathlib
import zipfile
from typing import Any

import gymnasium
import numpy as np

from agents.tools import spaces


class RecordingError(ValueError):
    """A recording that cannot be read or does not fit, in one line."""


FLAGS = ("reward", "terminated", "truncated")
STRUCTURES = ("observation", "action", "next_observation")


class Recorder:
    """Keeps the steps of one environment and writes them as one file.

        recorder = recordings.Recorder(env.observation_space, env.action_space)
        recorder.record(
            observation, action, reward, terminated, truncated, next_observation)
        recorder.save("expert.npz")

    Arrays are called by the path of their part, `observation/camera/left`, and have one
    entry per step, in the order of time.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> None:
        self._specs = _specs(observation_space, action_space)
        self._steps: list[list[np.ndarray]] = []

    def __len__(self) -> int:
        """Steps so far."""
        return len(self._steps)

    def record(
        self,
        observation: Any,
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_observation: Any,
    ) -> None:
        """Keep one step.

        Raises:
          RecordingError: for parts of another shape than that of the spaces.
        """
        values = dict(zip(FLAGS, (reward, terminated, truncated), strict=True))
        parts = (observation, action, next_observation)
        for name, value in zip(STRUCTURES, parts, strict=True):
            leaves = spaces.flatten(value)
            names = [x for x in self._specs if x.split("/")[0] == name]
            if len(leaves) != len(names):
                raise RecordingError(f"{name} must have the parts {', '.join(names)}.")
            values.update(zip(names, leaves, strict=True))
        row = []
        for name, spec in self._specs.items():
            array = np.array(values[name], spec.dtype)
            if array.shape != spec.shape:
                raise RecordingError(
                    f"{name} must have the shape {spec.shape}, got {array.shape}."
                )
            row.append(array)
        self._steps.append(row)

    def save(self, filename: str | pathlib.Path) -> None:
        """Write all steps so far."""
        columns = zip(*self._steps, strict=True)
        arrays = dict(zip(self._specs, map(np.stack, columns), strict=True))
        with open(filename, "wb") as file:
            np.savez_compressed(file, **arrays)


def load(
    filename: str | pathlib.Path,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
) -> dict[str, Any]:
    """What a `Recorder` has written.

    Returns:
      Structures of arrays `[steps, ...]` by `observation`, `action`, `reward`,
      `terminated`, `truncated` and `next_observation`.

    Raises:
      RecordingError: if there is none, or one of other spaces.
    """
    specs = _specs(observation_space, action_space)
    try:
        with np.load(filename, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RecordingError(f"cannot read recording {filename}: {error}.") from error
    for name, spec in specs.items():
        if name not in arrays:
            raise RecordingError(
                f"recording {filename} has no {name}, but {', '.join(arrays)}."
            )
        array = arrays[name]
        if array.shape[1:] != spec.shape or array.dtype != spec.dtype:
            raise RecordingError(
                f"{name} of recording {filename} must be {spec.dtype} "
                f"{list(spec.shape)}, is {array.dtype} {list(array.shape[1:])}."
            )
    result = {name: arrays[name] for name in FLAGS}
    for name in STRUCTURES:
        space = action_space if name == "action" else observation_space
        leaves = [arrays[x] for x in specs if x.split("/")[0] == name]
        result[name] = spaces.unflatten(spaces.spec(space), leaves)
    return result


def _specs(
    observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> dict[str, spaces.Spec]:
    """Shape and dtype of every array of a recording, by its name."""
    result = {"reward": spaces.Spec((), np.dtype(np.float32))}
    for name in FLAGS[1:]:
        result[name] = spaces.Spec((), np.dtype(bool))
    for name in STRUCTURES:
        space = action_space if name == "action" else observation_space
        structure = spaces.spec(space)
        for path, spec in zip(
            spaces.paths(structure), spaces.flatten(structure), strict=True
        ):
            result[f"{name}/{path}" if path else name] = spec
    return result
