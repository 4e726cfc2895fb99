"""Environments that hide a part of their state, so that policies need a memory."""

import gymnasium

POSITIONS = [0, 2]  # Of the cart and of the pole; the others are velocities.


def cartpole(render_mode: str | None = None) -> gymnasium.Env:
    """CartPole-v1 whose observation, float32 `[2]`, holds no velocities."""
    env = gymnasium.make(
        "CartPole-v1", render_mode=render_mode, disable_env_checker=True
    )
    full = env.observation_space
    space = gymnasium.spaces.Box(full.low[POSITIONS], full.high[POSITIONS])
    return gymnasium.wrappers.TransformObservation(
        env, lambda observation: observation[POSITIONS], space
    )
