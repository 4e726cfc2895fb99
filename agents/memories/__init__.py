"""Memories: storage of transitions between acting and training."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.memories.episodes import Episodes as Episodes
    from agents.memories.prioritized import Prioritized as Prioritized
    from agents.memories.queue import Queue as Queue
    from agents.memories.replay import Replay as Replay
    from agents.memories.replay import ReplayTooLarge as ReplayTooLarge
    from agents.memories.replay import replay_bytes as replay_bytes
    from agents.memories.sequences import Sequences as Sequences
    from agents.memories.uniform import Uniform as Uniform
    from agents.memories.unrolls import Unrolls as Unrolls

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
