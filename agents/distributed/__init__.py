"""Distributed runs: Ray actors around the objects of a local run.

Acting and training are divided at the memory. Only this package imports Ray.
"""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Actor": "actor",
        "DistributedError": "cluster",
        "Learner": "learner",
        "Options": "phases",
        "RayExecutor": "executor",
        "RayWorkers": "workers",
    },
)
