"""Memories: storage of transitions between acting and training."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "Episodes": "episodes",
        "Prioritized": "prioritized",
        "Queue": "queue",
        "Replay": "replay",
        "ReplayTooLarge": "replay",
        "Sequences": "sequences",
        "Uniform": "uniform",
        "Unrolls": "unrolls",
        "replay_bytes": "replay",
    },
)
