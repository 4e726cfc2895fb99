"""Reinforcement learning where simulation and learning are one TensorFlow graph."""

from agents import lazy, quiet

__version__ = "0.1.0"

quiet.silence()

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
