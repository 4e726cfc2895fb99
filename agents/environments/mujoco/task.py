"""Tasks of Gymnasium: the same trajectories as theirs, bit for bit."""

import dataclasses
import functools
import importlib
import pathlib
from typing import Any

import gymnasium
import numpy as np

from agents.environments.mujoco import robot
from agents.tools import config, errors

GYMNASIUM = {
    "Ant-v5": "crawlers:Ant",
    "HalfCheetah-v5": "walkers:HalfCheetah",
    "Hopper-v5": "walkers:Hopper",
    "Humanoid-v5": "humanoids:Humanoid",
    "HumanoidStandup-v5": "humanoids:HumanoidStandup",
    "InvertedDoublePendulum-v5": "pendulums:InvertedDoublePendulum",
    "InvertedPendulum-v5": "pendulums:InvertedPendulum",
    "Pusher-v5": "arms:Pusher",
    "Reacher-v5": "arms:Reacher",
    "Swimmer-v5": "walkers:Swimmer",
    "Walker2d-v5": "walkers:Walker2d",
}
"""Classes of this package by their names in Gymnasium."""
RENDERING = {
    *("camera_id", "camera_name", "default_camera_config", "height", "max_geom"),
    *("render_mode", "visual_options", "width"),
}
"""Arguments of Gymnasium's constructors that concern pictures only."""


class TaskError(errors.Mistake):
    """Task of Gymnasium with arguments that are not supported here."""


@dataclasses.dataclass(eq=False)
class Task(robot.Robot):
    """Robot with the arguments of a class in `gymnasium.envs.mujoco`.

    Attributes:
      normal_velocities: Whether the noise on initial velocities is normal, not uniform.
    """

    xml_file: str
    frame_skip: int

    resumes = True
    normal_velocities = False

    def initial(self, data: Any, random: Any) -> None:
        """Add noise to positions and velocities, scaled by `reset_noise_scale`."""
        scale, model = self.reset_noise_scale, data.model
        data.qpos += random.uniform(-scale, scale, model.nq)
        if self.normal_velocities:
            data.qvel += scale * random.standard_normal(model.nv)
        else:
            data.qvel += random.uniform(-scale, scale, model.nv)

    @property
    def model(self) -> pathlib.Path:
        """Path of the model, by the rules of Gymnasium."""
        from gymnasium.envs.mujoco import mujoco_env

        try:
            return pathlib.Path(mujoco_env.expand_model_path(self.xml_file)).absolute()
        except OSError as error:
            raise TaskError(f"{type(self).__name__}: {error}.") from None


def create(id: str, kwargs: dict[str, Any]) -> Task:
    """Create the task of a Gymnasium id.

    Raises:
      TaskError: for arguments that it does not know.
    """
    for name in kwargs:
        if name in RENDERING:
            raise TaskError(
                f"{id!r} takes no {name!r} with backend mujoco, which does not render; "
                "`agents visualize` makes environments of its own, and backend workers "
                "takes the argument."
            )
        if name not in arguments(id):
            hint = config.did_you_mean(name, arguments(id))
            raise TaskError(f"{id!r} has no argument {name!r}; {hint}")
    task = _class(id)(**kwargs)
    task.max_length = gymnasium.registry[id].max_episode_steps
    return task


def covers(id: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether there is a task for a Gymnasium id and arguments."""
    if not isinstance(id, str) or id not in GYMNASIUM:
        return False
    spec = gymnasium.registry.get(id)
    own = spec and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
    return bool(own) and not spec.kwargs and arguments(id) >= set(kwargs)


@functools.cache
def arguments(id: str) -> set[str]:
    """Return the names of the arguments of a task."""
    return {field.name for field in dataclasses.fields(_class(id))}


def _class(id: str) -> type[Task]:
    """Return the class of a Gymnasium id."""
    module, _, name = GYMNASIUM[id].partition(":")
    package = __name__.rpartition(".")[0]
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def squares(values: np.ndarray) -> np.ndarray:
    """Return the sums of the squares of all numbers `[N, ...]` of each row."""
    return np.square(values).reshape(len(values), -1).sum(1)


def norms(vectors: np.ndarray) -> np.ndarray:
    """Return lengths of vectors `[N, D]`, rounded as by `numpy.linalg.norm` of one."""
    products = np.matmul(vectors[:, None], vectors[:, :, None])
    return np.sqrt(products[:, 0, 0])
