"""Tools that connect environments and algorithms inside one graph."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.tools.batch_env import BatchEnv as BatchEnv
    from agents.tools.in_graph_batch_env import InGraphBatchEnv as InGraphBatchEnv
    from agents.tools.simulation import simulate as simulate

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "BatchEnv": "batch_env",
        "InGraphBatchEnv": "in_graph_batch_env",
        "simulate": "simulation",
    },
)
