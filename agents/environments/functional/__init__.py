"""Environments as pure TensorFlow functions, which compile with the algorithm."""

from agents import lazy

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
