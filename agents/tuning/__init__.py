"""Tuning: search for good values of a config."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {})
