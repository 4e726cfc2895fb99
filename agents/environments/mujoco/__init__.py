"""Physics of MuJoCo on the threads of mjbatch, without processes."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {"Robot": "robot"})
