"""Environments in the process of the caller, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

from agents.tools import batch_env


class Serial(batch_env.BatchEnv):
    """Batch of environments in this process; good for debugging and rendering.

    Args:
      constructors: Functions without arguments that make one environment each.
    """

    def __init__(self, constructors: Sequence[Callable[[], Any]]):
        super().__init__([constructor() for constructor in constructors], blocking=True)
