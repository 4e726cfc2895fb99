"""Who runs where: Ray actors around the objects of a local run.

Acting and training are divided at the memory. This is the only place that imports Ray.
"""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Actor": "actor",
        "DistributedError": "cluster",
        "Learner": "learner",
        "Options": "phase",
        "RayExecutor": "executor",
        "Workers": "workers",
    },
)
