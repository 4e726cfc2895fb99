"""Preprocessing of observations before the network."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.preprocessing.normalize import StreamingNormalize as StreamingNormalize
    from agents.preprocessing.observations import Observations as Observations
    from agents.preprocessing.preprocessed import Preprocessing as Preprocessing
    from agents.preprocessing.preprocessed import subclass as subclass
    from agents.preprocessing.stages import create as create

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
