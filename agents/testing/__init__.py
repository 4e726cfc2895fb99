"""Conformance checks for your own environments, algorithms and components."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.testing.algorithms import check_algorithm as check_algorithm
    from agents.testing.components import Call as Call
    from agents.testing.components import Rows as Rows
    from agents.testing.components import Time as Time
    from agents.testing.components import check_component as check_component
    from agents.testing.conformance import ConformanceError as ConformanceError
    from agents.testing.environments import check_batch_env as check_batch_env

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Call": "components",
        "ConformanceError": "conformance",
        "Rows": "components",
        "Time": "components",
        "check_algorithm": "algorithms",
        "check_batch_env": "environments",
        "check_component": "components",
    },
)
