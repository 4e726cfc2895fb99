"""PureJaxRL's PPO on CartPole: prints one line of JSON with its speed.

    PYTHON benchmarks/peers/purejaxrl_ppo.py --source DIR [--num_envs 4] [--steps N]

DIR is a checkout of https://github.com/luchris429/purejaxrl. Its wrappers are replaced,
since they expect an older gymnax. `compile_seconds` is for lowering and compiling the
whole training; `steps_per_s` is the rate of running it.
"""

import argparse
import functools
import json
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np


class FlattenObservationWrapper:
    """Adapter for gymnax 1.0, whose step returns both termination and truncation."""

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)

    @functools.partial(jax.jit, static_argnums=(0,))
    def reset(self, key, params=None):
        """First observation and state."""
        observation, state, *_ = self._env.reset(key, params)
        return jnp.reshape(observation, (-1,)), state

    @functools.partial(jax.jit, static_argnums=(0,))
    def step(self, key, state, action, params=None):
        """Observation, state, reward, done and info."""
        result = self._env.step(key, state, action, params)
        observation, state, reward, *done, info = result
        done = functools.reduce(jnp.logical_or, done)
        return jnp.reshape(observation, (-1,)), state, reward, done, info


class LogWrapper(FlattenObservationWrapper):
    """Wrapper that adds the return of the episode that ended to the info."""

    @functools.partial(jax.jit, static_argnums=(0,))
    def reset(self, key, params=None):
        """First observation and state."""
        observation, state = self._env.reset(key, params)
        return observation, (state, jnp.float32(0), jnp.float32(0))

    @functools.partial(jax.jit, static_argnums=(0,))
    def step(self, key, state, action, params=None):
        """Observation, state, reward, done and info."""
        inner, running, last = state
        observation, inner, reward, done, _ = self._env.step(key, inner, action, params)
        running = running + reward
        last = jnp.where(done, running, last)
        info = {"returned_episode_returns": last, "returned_episode": done}
        state = (inner, jnp.where(done, 0.0, running), last)
        return observation, state, reward, done, info


def main() -> None:
    """Compile, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True)
    parser.add_argument("--num_envs", type=int, default=4)
    parser.add_argument("--steps", type=float, default=5e5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.path.insert(0, args.source)
    wrappers = types.ModuleType("purejaxrl.wrappers")
    wrappers.LogWrapper = LogWrapper
    wrappers.FlattenObservationWrapper = FlattenObservationWrapper
    for name in ("wrappers", "purejaxrl.wrappers"):  # Older and newer versions.
        sys.modules[name] = wrappers
    from purejaxrl import ppo

    config = {
        "LR": 2.5e-4,
        "NUM_ENVS": args.num_envs,
        "NUM_STEPS": 128,
        "TOTAL_TIMESTEPS": args.steps,
        "UPDATE_EPOCHS": 4,
        "NUM_MINIBATCHES": 4,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ENV_NAME": "CartPole-v1",
        "ANNEAL_LR": True,
    }
    start = time.perf_counter()
    train = jax.jit(ppo.make_train(config)).lower(jax.random.PRNGKey(0)).compile()
    compiled = time.perf_counter()
    result = jax.block_until_ready(train(jax.random.PRNGKey(args.seed)))
    seconds = time.perf_counter() - compiled
    steps = int(config["NUM_UPDATES"]) * 128 * args.num_envs
    metrics = result["metrics"]
    returns = metrics["returned_episode_returns"]
    print(
        json.dumps(
            {
                "steps_per_s": round(steps / seconds),
                "compile_seconds": round(compiled - start, 2),
                "steps": steps,
                "return": round(float(returns[-1].mean()), 1),
                "seconds": seconds,
                "share_to_475": solved(returns, metrics["returned_episode"]),
            }
        )
    )


def solved(returns, ended) -> float | None:
    """Share of the run until the mean of the last 100 episodes reaches 475, if ever."""
    where = np.flatnonzero(np.asarray(ended))
    ends = np.asarray(returns).ravel()[where]
    means = np.convolve(ends, np.full(100, 0.01), "valid")
    good = np.flatnonzero(means >= 475)
    return float(where[good[0] + 99] / np.size(ended)) if len(good) else None


if __name__ == "__main__":
    main()
