"""The `predict` loop of Stable-Baselines3 on one CartPole-v1; prints JSON.

python benchmarks/peers/sb3_predict.py --steps N
"""

import argparse
import json
import time

import gymnasium
import stable_baselines3
import torch


def main() -> None:
    """Let an untrained policy act."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = gymnasium.make("CartPole-v1")
    model = stable_baselines3.PPO("MlpPolicy", env, device="cpu")

    def run(count):
        observation, _ = env.reset(seed=0)
        start = time.perf_counter()
        for _ in range(count):
            action, _ = model.predict(observation)
            observation, _, terminated, truncated, _ = env.step(int(action))
            if terminated or truncated:
                observation, _ = env.reset()
        return count / (time.perf_counter() - start)

    run(args.steps // 10)
    print(json.dumps({"steps_per_s": run(args.steps)}))


if __name__ == "__main__":
    main()
