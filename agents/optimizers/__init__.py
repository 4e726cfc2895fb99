"""Optimizers: rules by which parameters move."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.optimizers.clipped import Clipped as Clipped
    from agents.optimizers.conjugate_gradient import (
        ConjugateGradient as ConjugateGradient,
    )
    from agents.optimizers.evolutionary import Evolutionary as Evolutionary
    from agents.optimizers.gradient import Gradient as Gradient
    from agents.optimizers.guarded import Guarded as Guarded
    from agents.optimizers.line_search import LineSearch as LineSearch
    from agents.optimizers.minibatch import Minibatch as Minibatch
    from agents.optimizers.multi_step import MultiStep as MultiStep
    from agents.optimizers.natural_gradient import NaturalGradient as NaturalGradient
    from agents.optimizers.optimizer import Optimizer as Optimizer
    from agents.optimizers.optimizer import repeat as repeat
    from agents.optimizers.optimizer import scale as scale
    from agents.optimizers.plus import Plus as Plus
    from agents.optimizers.specification import create as create
    from agents.optimizers.specification import rated as rated
    from agents.optimizers.specification import unused_rate as unused_rate
    from agents.optimizers.synchronization import Synchronization as Synchronization

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
