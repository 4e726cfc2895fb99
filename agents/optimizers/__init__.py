"""Optimizers: rules by which parameters move."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Clipped": "clipped",
        "ConjugateGradient": "conjugate_gradient",
        "Evolutionary": "evolutionary",
        "Gradient": "gradient",
        "Guarded": "guarded",
        "LineSearch": "line_search",
        "Minibatch": "minibatch",
        "MultiStep": "multi_step",
        "NaturalGradient": "natural_gradient",
        "Optimizer": "optimizer",
        "Plus": "plus",
        "Synchronization": "synchronization",
        "create": "specification",
        "rated": "specification",
        "repeat": "optimizer",
        "scale": "optimizer",
        "unused_rate": "specification",
    },
)
