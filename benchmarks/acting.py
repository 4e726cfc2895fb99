"""`act` and `observe` of an Agent against the `predict` loop of Stable-Baselines3.

    python benchmarks/acting.py --peers PYTHON [--repeats 3] [--steps 5000]

PYTHON is the interpreter of a virtual environment with `peers/requirements.txt`. Both
sample actions in one CartPole-v1 with two layers of 64 units. Ours stores every step as
in training, but does not reach an update; theirs only chooses actions. Steps of the
environment and resets are included. They take turns, each in a process of its own.
`calls` is the rate of calls of a graph with one operation on the same observations, an
upper bound for any code with one call per step.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]


def main() -> None:
    """Measure in turns, print rates and their ratio, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--only", action="store_true", help="measure ours, here")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(ours(args.steps)))
        return
    steps = ["--steps", str(args.steps)]
    commands = {
        "agent": [sys.executable, __file__, "--only", *steps],
        "sb3": [args.peers, str(ROOT / "benchmarks/peers/sb3_predict.py"), *steps],
    }
    rates = {name: [] for name in (*commands, "calls")}
    for _ in range(args.repeats):
        for name, command in commands.items():
            output = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            result = json.loads(output.splitlines()[-1])
            rates[name].append(result.pop("steps_per_s"))
            print(f"{name:<6}{rates[name][-1]:>9,.0f} steps/s", flush=True)
            for more, rate in result.items():
                rates[more].append(rate)
                print(f"{more:<6}{rate:>9,.0f} per s", flush=True)
    pairs = zip(rates["agent"], rates["sb3"], strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"agent / sb3: {ratio:.2f}")
    print(json.dumps({**rates, "ratio": ratio}))


def ours(steps: int) -> dict[str, float]:
    """Environment steps and calls of a graph per second."""
    from agents.scripts import commands

    commands.start_tensorflow()
    import gymnasium
    import tensorflow as tf

    import agents

    env = gymnasium.make("CartPole-v1")
    config = {"type": "ppo", "memory": "unrolls", "unroll_length": 10 * steps}
    config["network"] = "small"
    agent = agents.Agent.create(config, env.observation_space, env.action_space)

    def run(count):
        observation, _ = env.reset(seed=0)
        start = time.perf_counter()
        for _ in range(count):
            action = agent.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            last = observation if over else None
            agent.observe(reward, terminated, truncated, next_observation=last)
            if over:
                observation, _ = env.reset()
        return count / (time.perf_counter() - start)

    def call(count):
        observation = env.reset()[0][None]
        graph = tf.function(lambda x: tf.argmax(x, 1), autograph=False)
        graph = graph.get_concrete_function(tf.TensorSpec([None, 4]))
        start = time.perf_counter()
        for _ in range(count):
            graph(tf.constant(observation)).numpy()
        return count / (time.perf_counter() - start)

    run(steps // 10)  # Traces.
    return {"steps_per_s": run(steps), "calls": call(steps)}


if __name__ == "__main__":
    main()
