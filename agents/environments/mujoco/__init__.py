"""Physics of MuJoCo on the threads of mjbatch, without processes."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.environments.mujoco.robot import Robot as Robot

__getattr__, __dir__, __all__ = lazy.attach(__name__, {"Robot": "robot"})
