"""Conformance checks for your own environments, algorithms and components."""

from agents import lazy

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
