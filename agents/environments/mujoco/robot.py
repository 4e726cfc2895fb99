"""Interface of robots, or of anything that MuJoCo simulates, as a batch of rows."""

import abc
import pathlib
from typing import Any

import gymnasium
import numpy as np


class Robot(abc.ABC):
    """Model of MuJoCo with functions that make it an environment of N rows.

    The functions are pure and see the simulations as `data`, whose attributes are the
    fields of `mujoco.MjData` with a leading dimension: `data.qpos` is `[N, nq]`. There
    are no contacts, whose number changes; use sensors or forces. Parts of the model
    have names: `data.joint("hinge").qpos` is `[N]`, and `data.body("torso").xpos` is
    `[N, 3]`; see `fields.Fields`. For example:

        class CartPole(Robot):
            model = "cartpole.xml"
            frame_skip = 2

            def initial(self, data, random):
                data.qpos = random.uniform(-0.1, 0.1, 2)

            def observation(self, data):
                return np.concatenate([data.qpos, data.qvel], 1)

            def reward(self, before, action, data):
                return np.cos(data.joint("hinge").qpos)

            def terminal(self, data):
                return abs(data.joint("slide").qpos) > 2

    Per step, `before` is called, then the actions become the controls, MuJoCo advances
    `frame_skip` times, and `reward`, `terminal` and `observation` are called. As with
    `mujoco.mj_step`, derived fields such as positions of bodies are one time step of
    the model behind `qpos` and `qvel`.

    Attributes:
      model: File of a model, relative to the file of the class; text of one in XML; or
        a `mujoco.MjSpec`.
      frame_skip: Time steps of the model per step.
      max_length: Steps after which to truncate episodes; None for no limit.
      forces: Whether `cacc`, `cfrc_int` and `cfrc_ext` are computed in every step.
      varied: Names of fields of `mujoco.MjModel` that `vary` changes.
      observation_space: By default unlimited, shaped like observations.
      action_space: By default the control ranges of the actuators.
      resumes: Whether episodes go on when unstable physics make MuJoCo restart.
    """

    model: str | pathlib.Path | Any
    frame_skip: int = 1
    max_length: int | None = 1000
    forces: bool = False
    varied: tuple[str, ...] = ()
    observation_space: gymnasium.Space | None = None
    action_space: gymnasium.Space | None = None
    resumes: bool = False

    def vary(self, model: Any, random: Any) -> None:
        """Change the models of K rows at the beginnings of their episodes.

        At first, the fields in `varied` have the values of the file. Constants that
        MuJoCo derives from them are updated.

        Args:
          model: Fields `[K, ...]` that can be written, like
            `model.geom("floor").friction`.
          random: Generators of the rows, see `initial`.
        """
        raise NotImplementedError(f"{type(self).__name__} has varied, but no vary.")

    @abc.abstractmethod
    def initial(self, data: Any, random: Any) -> None:
        """Write the initial states of K episodes, by default those of the model.

        Args:
          data: Fields `[K, ...]` of the state that can be written, like `qpos`.
          random: Generators of the rows. `random.uniform(-1, 1, 3)` draws `[K, 3]`, as
            all functions of `numpy.random.Generator` do; iteration yields the
            generators themselves.
        """

    def before(self, data: Any) -> Any:
        """Return the data from before the step that `reward` needs."""
        return None

    @abc.abstractmethod
    def observation(self, data: Any) -> Any:
        """Return observations, an array `[N, ...]` or a dict or tuple of these."""

    @abc.abstractmethod
    def reward(self, before: Any, action: Any, data: Any) -> np.ndarray:
        """Return rewards `[N]` of a step.

        Args:
          before: Result of `before`, called ahead of the step.
          action: Actions `[N, ...]`.
          data: Fields after the step.
        """

    def terminal(self, data: Any) -> np.ndarray:
        """Return whether the episodes have ended, bool `[N]`."""
        return np.zeros(len(data), bool)

    def control(self, action: Any) -> np.ndarray:
        """Return controls `[N, nu]` of actions; for action spaces of your own."""
        return action


def is_robot(function: Any) -> bool:
    """Return whether this is a class of robots."""
    return isinstance(function, type) and issubclass(function, Robot)
