"""Distributed runs: Ray actors around the objects of a local run.

Acting and training are divided at the memory. Only this package imports Ray.
"""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.distributed.actor import Actor as Actor
    from agents.distributed.cluster import DistributedError as DistributedError
    from agents.distributed.executor import RayExecutor as RayExecutor
    from agents.distributed.learner import Learner as Learner
    from agents.distributed.phases import Options as Options
    from agents.distributed.workers import RayWorkers as RayWorkers

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
