"""Reinforcement learning where simulation and learning are one TensorFlow graph."""

from typing import TYPE_CHECKING

from agents import lazy, namesakes, quiet

if TYPE_CHECKING:
    from agents.agent import Agent as Agent
    from agents.runner import Runner as Runner
    from agents.tools.batch_env import BatchEnv as BatchEnv
    from agents.tools.in_graph_batch_env import InGraphBatchEnv as InGraphBatchEnv
    from agents.tools.simulation import simulate as simulate

__version__ = "0.1.0"

quiet.silence()
namesakes.warn(__path__[0])

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Agent": "agent",
        "BatchEnv": "tools.batch_env",
        "InGraphBatchEnv": "tools.in_graph_batch_env",
        "Runner": "runner",
        "simulate": "tools.simulation",
    },
)
