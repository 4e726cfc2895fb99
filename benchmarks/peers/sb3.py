"""Stable-Baselines3 on one environment; prints steps per second as JSON.

    python benchmarks/peers/sb3.py [--algorithm ppo|trpo|dqn|sac] --setting default|equal \
        --threads N --steps N

Import and construction are not timed; acting and learning are.
"""

import argparse
import json
import time

import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common import env_util, vec_env


def main() -> None:
    """Train and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--algorithm", choices=("ppo", "trpo", "dqn", "sac"), default="ppo"
    )
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--setting", choices=("default", "equal"), default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40_960)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    settings, num_envs = {}, 1
    if args.algorithm in ("dqn", "sac"):  # Defaults, except for an early start.
        settings = {"learning_starts": 1000}
    elif args.setting == "equal":
        settings, num_envs = {"n_steps": 128}, 16
        if args.algorithm == "ppo":
            settings |= {"batch_size": 512, "n_epochs": 10}
    envs = env_util.make_vec_env(
        args.env, num_envs, seed=0, vec_env_cls=vec_env.DummyVecEnv
    )
    classes = {
        "ppo": stable_baselines3.PPO,
        "trpo": sb3_contrib.TRPO,
        "dqn": stable_baselines3.DQN,
        "sac": stable_baselines3.SAC,
    }
    cls = classes[args.algorithm]
    model = cls("MlpPolicy", envs, seed=0, device="cpu", **settings)
    start = time.perf_counter()
    model.learn(args.steps)
    seconds = time.perf_counter() - start
    print(json.dumps({"steps_per_s": model.num_timesteps / seconds}))


if __name__ == "__main__":
    main()
