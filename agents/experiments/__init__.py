"""Experiments: configs of runs, their phases, results and displays."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {})
