"""Tools that connect environments and algorithms inside one graph."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "BatchEnv": "batch_env",
        "InGraphBatchEnv": "in_graph_batch_env",
        "simulate": "simulation",
    },
)
