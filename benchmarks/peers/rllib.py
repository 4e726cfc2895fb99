"""RLlib on CartPole or Pong; prints environment steps per second as JSON.

    python benchmarks/peers/rllib.py --algorithm impala|ppo --env ID --seconds S
        [--envs N --unroll T --epochs E --minibatch M]

Without numbers of environments it uses its defaults, with two runners. The time until
the first results, which includes starting and warming up, is not counted.
"""

import argparse
import json
import logging
import time

import ale_py
import gymnasium
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

NATURE = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
RUNNERS = 2


def main() -> None:
    """Train for a while and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=("impala", "ppo"), required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--envs", type=int)
    parser.add_argument("--unroll", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--minibatch", type=int)
    args = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(include_dashboard=False, log_to_driver=False)
    algorithm = config(args).build_algo()
    algorithm.train()
    before, start = steps(algorithm.train(), args.algorithm), time.perf_counter()
    while (seconds := time.perf_counter() - start) < args.seconds:
        after = steps(algorithm.train(), args.algorithm)
        seconds = time.perf_counter() - start
    rates = {key: (after[key] - before[key]) / seconds for key in after}
    print(json.dumps({"steps_per_s": max(rates.values()), **rates}))
    algorithm.stop()
    ray.shutdown()


def config(args: argparse.Namespace) -> IMPALAConfig | PPOConfig:
    """Create the config of the run."""
    register_env("pong", pong)
    atari = args.env.startswith("ALE/")
    result = {"impala": IMPALAConfig, "ppo": PPOConfig}[args.algorithm]()
    result = result.environment("pong" if atari else args.env)
    result = result.learners(num_learners=0)
    if not args.envs:
        return result.env_runners(num_env_runners=RUNNERS)
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False)
    if atari:
        model = DefaultModelConfig(
            conv_filters=[list(x) for x in NATURE],
            conv_activation="relu",
            head_fcnet_hiddens=[512],
            head_fcnet_activation="relu",
            vf_share_layers=True,
        )
    training = {"train_batch_size_per_learner": args.envs * args.unroll}
    if args.algorithm == "ppo":
        training["num_epochs"] = args.epochs
        training["minibatch_size"] = args.minibatch
    return (
        result.env_runners(
            num_env_runners=RUNNERS,
            num_envs_per_env_runner=args.envs // RUNNERS,
            rollout_fragment_length=args.unroll,
        )
        .training(**training)
        .rl_module(model_config=model)
    )


def pong(settings: dict) -> gymnasium.Env:
    """Pong as RLlib's own examples make it: 84 x 84 pixels, four frames."""
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, **settings)
    return wrap_atari_for_new_api_stack(env, dim=84, framestack=4)


def steps(result: dict, algorithm: str) -> dict[str, float]:
    """Environment steps so far; RLlib counts those of PPO once per minibatch."""
    sampled = {"sampled": result["env_runners"]["num_env_steps_sampled_lifetime"]}
    if algorithm == "ppo":
        return sampled
    learned = result["learners"]["__all_modules__"]
    return {**sampled, "trained": learned["num_env_steps_trained_lifetime"]}


if __name__ == "__main__":
    main()
