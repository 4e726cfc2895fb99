"""SBX, which is Stable-Baselines3 in JAX, on one environment; prints a rate as JSON.

    python benchmarks/peers/sb3_jax.py --algorithm dqn|sac --env ID --steps N

Import and construction are not timed; compilation, acting and learning are, as for
the others.
"""

import argparse
import json
import time

import sbx
from stable_baselines3.common import env_util


def main() -> None:
    """Train and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=("dqn", "sac"), required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    envs = env_util.make_vec_env(args.env, 1, seed=0)
    cls = {"dqn": sbx.DQN, "sac": sbx.SAC}[args.algorithm]
    model = cls("MlpPolicy", envs, seed=0, learning_starts=1000)
    start = time.perf_counter()
    model.learn(args.steps)
    seconds = time.perf_counter() - start
    print(json.dumps({"steps_per_s": model.num_timesteps / seconds}))


if __name__ == "__main__":
    main()
