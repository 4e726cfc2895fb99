"""Environments as pure TensorFlow functions, which compile with the algorithm."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.environments.functional.acrobot import Acrobot as Acrobot
    from agents.environments.functional.cartpole import CartPole as CartPole
    from agents.environments.functional.catch import Catch as Catch
    from agents.environments.functional.functional_env import (
        FunctionalEnv as FunctionalEnv,
    )
    from agents.environments.functional.grid_world import GridWorld as GridWorld
    from agents.environments.functional.mountain_car import (
        ContinuousMountainCar as ContinuousMountainCar,
    )
    from agents.environments.functional.mountain_car import MountainCar as MountainCar
    from agents.environments.functional.pendulum import Pendulum as Pendulum
    from agents.environments.functional.recall import Recall as Recall

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Acrobot": "acrobot",
        "CartPole": "cartpole",
        "Catch": "catch",
        "ContinuousMountainCar": "mountain_car",
        "FunctionalEnv": "functional_env",
        "GridWorld": "grid_world",
        "MountainCar": "mountain_car",
        "Pendulum": "pendulum",
        "Recall": "recall",
    },
)

GYMNASIUM = {
    "Acrobot-v1": "Acrobot",
    "CartPole-v1": "CartPole",
    "MountainCar-v0": "MountainCar",
    "MountainCarContinuous-v0": "ContinuousMountainCar",
    "Pendulum-v1": "Pendulum",
}
"""Names in Gymnasium of environments that are equal to one of these classes."""
