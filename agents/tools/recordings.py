"""Recorded transitions of any agent or script: files, and fragments of episodes."""

import pathlib
from typing import Any

import gymnasium
import numpy as np

from agents.tools import errors, files, leaves, spaces


class RecordingError(errors.Mistake):
    """Recording that cannot be read or does not fit, in one line."""


FLAGS = {"reward": np.float32, "terminated": bool, "truncated": bool}
STRUCTURES = ("observation", "action", "next_observation")
NAMES = ("observation", "action", *FLAGS, "next_observation")
"""Parts of a recording, in order of time."""


class Recorder:
    """Collector of the steps of one environment, written as one file.

        recorder = recordings.Recorder(env.observation_space, env.action_space)
        recorder.record(
            observation, action, reward, terminated, truncated, next_observation)
        recorder.save("expert.npz")

    Arrays are named by the path of their part, `observation/camera/left`, and have one
    entry per step, in order of time.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> None:
        """Create an empty recording.

        Raises:
          RecordingError: if two parts of a space have the same path.
        """
        self._parts = _parts(observation_space, action_space)
        self._steps: list[list[np.ndarray]] = []

    def __len__(self) -> int:
        """Number of steps so far."""
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
        """Add one step.

        Raises:
          RecordingError: for parts that are not finite, or do not fit the spaces;
            observations beyond the bounds of a Box do.
        """
        values = (observation, action, next_observation)
        flags = zip((reward, terminated, truncated), FLAGS.items(), strict=True)
        row = [
            leaves.column(value, name, 1, dtype, RecordingError)[0]
            for value, (name, dtype) in flags
        ]
        for part, value in zip(self._parts.values(), values, strict=True):
            row += [leaf[0] for leaf in part.batch(value, 1, single=True)]
        self._steps.append(row)

    def save(self, filename: str | pathlib.Path) -> None:
        """Write all steps so far, replacing the file.

        Raises:
          WriteError: if there is no room; the old file stays.
        """
        columns = zip(_specs(self._parts).items(), *self._steps, strict=True)
        arrays = {
            name: np.array(column, spec.dtype) for (name, spec), *column in columns
        }
        with files.whole(filename) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)


def load(
    filename: str | pathlib.Path,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
) -> dict[str, Any]:
    """Load a file that a `Recorder` has written.

    Returns:
      Structures of arrays `[steps, ...]` by `observation`, `action`, `reward`,
      `terminated`, `truncated` and `next_observation`.

    Raises:
      RecordingError: if the file is missing, damaged, for other spaces, or has no steps.
    """
    parts = _parts(observation_space, action_space)
    try:
        with open(filename, "rb") as opened, np.load(opened) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except Exception as error:  # Damaged files raise all kinds of errors.
        reason = str(error).split("\n")[0] or type(error).__name__
        raise RecordingError(f"cannot read recording {filename}: {reason}.") from error
    for name, spec in _specs(parts).items():
        if name not in arrays:
            raise RecordingError(
                f"recording {filename} has no {name}, but {', '.join(arrays)}."
            )
        if arrays["reward"].shape == (0,):
            raise RecordingError(f"recording {filename} has no steps.")
        array, steps = arrays[name], arrays["reward"].shape[:1] or (0,)
        if array.shape != (*steps, *spec.shape) or array.dtype != spec.dtype:
            raise RecordingError(
                f"{name} of recording {filename} must be {spec.dtype} "
                f"{[*steps, *spec.shape]}, is {array.dtype} {list(array.shape)}."
            )
    result = {name: arrays[name] for name in FLAGS}
    for name, part in parts.items():
        value = part.unflatten([arrays[x] for x in part.names])
        result[name] = part.unflatten(part.batch(value, len(result["reward"]), False))
    for name in FLAGS:
        leaves.stored(result[name], name, result[name].dtype, RecordingError)
    return result


def fragments(steps: dict[str, Any], indices: np.ndarray) -> tuple[Any, np.ndarray]:
    """Arrange consecutive steps side by side.

    An episode that was abandoned without a flag becomes truncated: where the next
    observation of a step differs from the observation of the following step.

    Args:
      steps: Structures of arrays `[B, ...]` by `NAMES`, in order of time.
      indices: Integers `[B]`, equal for steps of one fragment.

    Returns:
      Structures of arrays `[F, T, ...]`, with zeros after shorter fragments, and a
      mask of valid steps, bool `[F, T]`.
    """
    order = np.argsort(indices, kind="stable")
    _, counts = np.unique(indices, return_counts=True)
    mask = np.arange(counts.max()) < counts[:, None]

    def side_by_side(array):
        result = np.zeros([*mask.shape, *array.shape[1:]], array.dtype)
        result[mask] = array[order]
        return result

    result = spaces.transform(side_by_side, steps)
    abandoned = _abandoned(result) & mask[:, 1:] & ~result["terminated"][:, :-1]
    result["truncated"][:, :-1] |= abandoned
    return result, mask


def _abandoned(pieces: dict[str, Any]) -> np.ndarray:
    """Find steps `[F, T - 1]` whose next observation is not that of the next step."""
    now, following = pieces["observation"], pieces["next_observation"]
    result = np.zeros_like(pieces["truncated"][:, 1:])
    for x, y in zip(spaces.flatten(now), spaces.flatten(following), strict=True):
        result |= (x[:, 1:] != y[:, :-1]).any(tuple(range(2, x.ndim)))
    return result


def _parts(
    observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> dict[str, leaves.Leaves]:
    """Create a converter for each structure of a recording."""
    both = (observation_space, action_space, observation_space)
    parts = {
        name: leaves.Leaves(space, name, RecordingError, within=name == "action")
        for name, space in zip(STRUCTURES, both, strict=True)
    }
    for part in parts.values():
        for name in part.names:
            if part.names.count(name) > 1:
                raise RecordingError(
                    f"cannot record two parts named {name!r}; rename the key with '/'."
                )
    return parts


def _specs(parts: dict[str, leaves.Leaves]) -> dict[str, spaces.Spec]:
    """Return shape and dtype of every array of a recording, by name."""
    result = {name: spaces.Spec((), np.dtype(x)) for name, x in FLAGS.items()}
    for part in parts.values():
        result |= zip(part.names, part.specs, strict=True)
    return result
