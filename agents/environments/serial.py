"""Environments in the process of the caller, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

from agents.tools import batch_env


class Serial(batch_env.BatchEnv):
    """Batch of environments in this process; good for debugging and rendering.

    Args:
      constructors: Functions without arguments that make one environment each.
      first_row: What errors add to rows, where this is a part of a larger batch.
    """

    def __init__(self, constructors: Sequence[Callable[[], Any]], first_row: int = 0):
        super().__init__(
            [constructor() for constructor in constructors], True, first_row
        )
