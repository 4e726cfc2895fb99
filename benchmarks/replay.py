"""DQN and SAC against Stable-Baselines3 and SBX, and the sum tree of priorities.

    python benchmarks/replay.py --peers PYTHON [--repeats 3] [--only dqn|sac|tree]
                                [--num_agents N]

PYTHON is the interpreter of a virtual environment with `peers/requirements.txt`.
Contestants take turns, each in a process of its own.

- dqn: CartPole-v1, batches of 32, 64-64 networks, an update every 4 steps; we step 16
  environments at a time, the peers one;
- sac: HalfCheetah-v5, batches of 256, 256-256 networks, an update every step; we step 4
  environments at a time, the peers one;
- tree: insert, sample and update 512 rows of a million with priorities.

Two rates are ours: from the beginning, tracing and compilation included, and after the
first quarter. The peers have one, from the beginning: SBX compiles, too.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
SETTINGS = {
    "dqn": (
        "CartPole-v1",
        "cartpole_dqn",
        50_000,
        [
            "environment.num_agents=16",
            "algorithm.batch_size=32",
            "algorithm.n_step=1",
            "algorithm.replay_ratio=0.25",
            "algorithm.network.layers=[64, 64]",
            "algorithm.capacity=1000000",
        ],
    ),
    "sac": ("HalfCheetah-v5", "cheetah_sac", 6_000, []),
}
"""Environment, config, steps, and changes of the config."""


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=(*SETTINGS, "tree"))
    parser.add_argument("--num_agents", type=int, help="number of our environments")
    parser.add_argument("--ours", action="store_true", help="without the peers, once")
    args = parser.parse_args()
    if args.ours:
        if args.only not in SETTINGS:
            parser.error("--ours needs --only dqn or --only sac.")
        print(json.dumps(ours(args.only, args.num_agents)))
        return
    if not args.peers and args.only != "tree":
        parser.error("--peers is missing.")
    names = [args.only] if args.only else [*SETTINGS, "tree"]
    result = {name: tree() if name == "tree" else compare(name, args) for name in names}
    print(json.dumps(result))


def compare(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Median rates of all contestants, and ratios to the best of each kind of peer."""
    env, _, steps, _ = SETTINGS[name]

    def peer(script: str, *options: str) -> list[str]:
        command = [args.peers, str(ROOT / f"benchmarks/peers/{script}.py"), *options]
        return [*command, "--env", env, "--algorithm", name, "--steps", str(steps)]

    own = [sys.executable, __file__, "--ours", "--only", name]
    if args.num_agents:
        own += ["--num_agents", str(args.num_agents)]
    commands = {
        "agents": own,
        "sb3, 1 thread": peer("sb3"),
        "sb3, 2 threads": peer("sb3", "--threads", "2"),
        "sbx": peer("sb3_jax"),
    }
    rates = {}
    for _ in range(args.repeats):
        for key, command in commands.items():
            output = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            row = json.loads(output.splitlines()[-1])
            rates.setdefault(key, []).append(row["steps_per_s"])
            if "steady" in row:
                rates.setdefault(f"{key}, later", []).append(row["steady"])
            print(f"{name:<5}{key:<16}{row}", flush=True)
    sb3 = map(max, zip(rates["sb3, 1 thread"], rates["sb3, 2 threads"], strict=True))
    best = {"sb3": list(sb3), "sbx": rates["sbx"]}
    result = {key: round(statistics.median(x)) for key, x in rates.items()}
    for own in ("agents", "agents, later"):
        for other, values in best.items():
            ratios = [x / y for x, y in zip(rates[own], values, strict=True)]
            result[f"{own} / {other}"] = round(statistics.median(ratios), 2)
    return result


def ours(name: str, num_agents: int | None) -> dict[str, float]:
    """Steps per second of training, as many steps as the peers make, and later ones."""
    sys.path.insert(0, str(ROOT))
    from agents.experiments import named, runs
    from agents.scripts import commands

    commands.start_tensorflow()
    from agents import tools

    _, preset, steps, changes = SETTINGS[name]
    if num_agents:
        changes = [*changes, f"environment.num_agents={num_agents}"]
    config = named.load(preset, ["algorithm.start_size=1000", *changes])
    commands.use_threads(config)
    batch_env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    count = steps // len(batch_env) // 4
    seconds = []
    for part in (count, 3 * count):
        start = time.perf_counter()
        tools.simulate(batch_env, agent, part, training=True)
        seconds.append(time.perf_counter() - start)
    batch_env.close()
    rows = count * len(batch_env)
    return {"steps_per_s": 4 * rows / sum(seconds), "steady": 3 * rows / seconds[1]}


def tree(size: int = 1_000_000, rows: int = 512, count: int = 200) -> dict[str, float]:
    """Milliseconds of inserting, sampling and updating rows, each and all together."""
    sys.path.insert(0, str(ROOT))
    from agents.scripts import commands

    commands.start_tensorflow()
    import tensorflow as tf

    from agents import memories

    selector = memories.Prioritized()
    selector.build(size)
    selector.change(tf.range(rows, size), tf.zeros([0], tf.int32))
    generator = tf.random.Generator.from_seed(0)
    head = tf.Variable(0)  # The oldest are overwritten here, as in a full memory.

    def change():
        places = (head + tf.range(2 * rows)) % size
        selector.change(places[:rows], places[rows:])
        head.assign((head + rows) % size)

    def sample():
        seed = generator.uniform_full_int([2], tf.int32)
        return selector.sample(rows, seed)[0]

    def everything():
        change()
        selector.update(sample(), generator.normal([rows]))

    result = {}
    for name, function in (("sample", sample), ("all", everything)):

        @tf.function(autograph=False)
        def repeat(function=function):
            def body(index, total):
                output = function()
                total += 0 if output is None else output[0]
                return index + 1, total

            return tf.while_loop(
                lambda index, _: index < count, body, (0, 0), parallel_iterations=1
            )

        repeat()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            repeat()
            times.append((time.perf_counter() - start) / count * 1e3)
        result[name] = round(statistics.median(times), 3)
    return result


if __name__ == "__main__":
    main()
