"""Environments: one backend per file."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__, {"BackendError": "config", "Environment": "config"}
)
