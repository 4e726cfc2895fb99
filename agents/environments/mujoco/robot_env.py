"""Single environments of robots, for workers, videos and checks."""

import copy
from typing import Any

import gymnasium
import numpy as np

from agents.environments.mujoco import backend
from agents.environments.mujoco import robot as robot_
from agents.tools import checks, spaces

_SIZE = 480
"""Width and height of pictures."""


class RobotEnv(gymnasium.Env):
    """Environment of one robot: a batch of one row, which can be rendered.

    Pictures show the view of the model's first camera, or else the model's center.

    Args:
      robot: Functions and model.
      max_length: Steps after which to truncate episodes; by default the robot's limit.
      render_mode: `rgb_array`, or None.
    """

    def __init__(
        self,
        robot: robot_.Robot,
        max_length: int | None = None,
        render_mode: str | None = None,
    ):
        self._batch = backend.Mujoco(robot, 1, 1, max_length)
        self.observation_space = self._batch.observation_space
        self.action_space = self._batch.action_space
        self.render_mode = render_mode
        fps = max(round(1 / self._batch[0].dt), 1)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self._max_episode_steps = self._batch.max_length
        self._renderer = None

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        seeds = None if seed is None else [seed]
        return self._single(self._batch.reset(seeds=seeds)), {}

    def step(self, action: Any):
        actions = spaces.transform(lambda x: np.asarray(x)[None], action)
        try:
            observation, *results, _ = self._batch.step(actions)
        except checks.EnvDataError as error:  # The row has another number outside.
            text = str(error).removeprefix("Environment row 0: ")
            raise checks.EnvDataError(text) from None
        reward, terminated, truncated = (x.item() for x in results)
        return self._single(observation), reward, terminated, truncated, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        import mujoco

        simulations = self._batch.simulations
        if self._renderer is None:
            self._model = copy.copy(simulations.model)
            self._renderer = mujoco.Renderer(self._model, _SIZE, _SIZE)
        camera = 0 if self._model.ncam else -1
        self._renderer.update_scene(simulations.copy(0, self._model), camera)
        return self._renderer.render()

    def close(self):
        self._batch.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _single(self, observation: Any) -> Any:
        """Return the observation of the row, with the dtypes of the space."""
        pairs = zip(
            spaces.flatten(observation),
            spaces.flatten(self.observation_space),
            strict=True,
        )
        leaves = [leaf[0].astype(part.dtype) for leaf, part in pairs]
        return spaces.unflatten(spaces.spec(self.observation_space), leaves)


def create(
    robot: type[robot_.Robot],
    max_length: int | None,
    /,
    render_mode: str | None = None,
    **kwargs: Any,
) -> RobotEnv:
    """Create an environment of a class of robots and its arguments."""
    return RobotEnv(robot(**kwargs), max_length, render_mode)
