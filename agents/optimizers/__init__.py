"""How parameters move."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Gradient": "gradient",
        "minibatch_steps": "minibatches",
    },
)
