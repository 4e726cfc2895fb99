"""Recordings of an expert."""

import numpy as np
from gymnasium import spaces as gs

from agents.tools import recordings

BOX = gs.Box(np.float32([-2, 0]), np.float32([2, 1]))
SEEN = gs.Box(-1, 1, (3,))


def rule(observation, space):
    """Return the action of the expert."""
    if isinstance(space, gs.Discrete):
        return int(space.start + (observation[0] > 0) + (observation[1] > 0))
    unit = np.clip(observation[:2], -0.9, 0.9)
    return (space.low + (unit + 1) / 2 * (space.high - space.low)).astype(np.float32)


def record(path, space, steps=600, delay=0, length=7):
    """Recording of an expert, whose actions follow what was seen some steps before."""
    recorder = recordings.Recorder(SEEN, space)
    random = np.random.default_rng(0)
    seen = random.uniform(-1, 1, (steps + 1, 3)).astype(np.float32)
    for step in range(steps):
        action = rule(seen[max(step - delay, step // length * length)], space)
        over = step % length == length - 1
        recorder.record(
            seen[step], action, 0.5, over and step % 2, over, seen[step + 1]
        )
    recorder.save(path)
    return seen
