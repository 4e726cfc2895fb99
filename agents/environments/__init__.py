"""Environments: one backend per file."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.environments.config import BackendError as BackendError
    from agents.environments.config import Environment as Environment

__getattr__, __dir__, __all__ = lazy.attach(
    __name__, {"BackendError": "config", "Environment": "config"}
)
