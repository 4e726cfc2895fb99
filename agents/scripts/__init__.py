"""Commands, one per file."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {})
