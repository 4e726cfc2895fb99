"""Environments with partly hidden state, so that policies need memory."""

import gymnasium

POSITIONS = [0, 2]  # Of cart and pole, without velocities.


def cartpole(render_mode: str | None = None) -> gymnasium.Env:
    """Create CartPole-v1 with observations float32 `[2]`, without velocities."""
    env = gymnasium.make(
        "CartPole-v1", render_mode=render_mode, disable_env_checker=True
    )
    full = env.observation_space
    space = gymnasium.spaces.Box(full.low[POSITIONS], full.high[POSITIONS])
    return gymnasium.wrappers.TransformObservation(
        env, lambda observation: observation[POSITIONS], space
    )
