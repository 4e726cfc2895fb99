"""Preprocessing of observations before the network."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Observations": "observations",
        "Preprocessing": "preprocessed",
        "create": "stages",
        "subclass": "preprocessed",
        "StreamingNormalize": "normalize",
    },
)
