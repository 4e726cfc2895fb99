"""Seconds of one update, compared with those of its matrix products alone.

    python benchmarks/update.py [--repeats 5] [--set KEY=VALUE ...] [--config NAME ...]

Environments that do nothing fill the memory once; then the algorithm learns from it
repeatedly. The products are those of all dense layers for the same number of steps: one
forward and two backward, each at the size of the minibatch or block of the update, and
compiled by XLA. Their share of the update bounds the gain from faster code.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EQUAL = "cheetah_clip with algorithm.minibatch_size=512"


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", nargs="+", default=["cheetah_clip", "cheetah"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    from agents.scripts import commands

    commands.start_tensorflow()
    results = {}
    for name in args.config:
        learn, products, gigaflops, steps = prepare(name, args.set)
        learn(), products()
        taken = [(seconds(learn), seconds(products)) for _ in range(args.repeats)]
        update = statistics.median(x for x, _ in taken)
        share = statistics.median(y / x for x, y in taken)
        results[name] = {
            "steps": steps,
            "update_ms": round(1e3 * update, 1),
            "gflops_per_s": round(gigaflops / update, 1),
            "share_of_products": round(share, 2),
        }
        print(
            f"{name}: {1e3 * update:,.0f} ms for {steps:,} steps, "
            f"{gigaflops / update:.0f} GFLOP/s; its products alone take {share:.0%}"
        )
    print(json.dumps(results))


def seconds(function) -> float:
    """Duration of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def prepare(name: str, overrides: list[str]):
    """An update, its products, their 10^9 operations, and the steps of the batch."""
    import tensorflow as tf

    from agents import tools
    from agents.experiments import named, runs, speed

    config = named.load(name, overrides)
    description = runs.describe(config)
    agent = runs.algorithm(config, description)
    agent.learning = False
    nothing = speed._Nothing(description, config.environment.num_agents)
    batch = tools.InGraphBatchEnv(nothing)
    while not agent.memory.full():
        tools.simulate(batch, agent, max(agent.batch_steps, 50))
    data, mask = agent.memory.data()
    steps = int(tf.reduce_sum(tf.cast(mask, tf.int32)))
    settings = config.algorithm
    size = settings.minibatch_size or settings.block_size
    kernels = [x.value for x in agent.network.trainable_variables if len(x.shape) == 2]

    @tf.function(autograph=False)
    def learn():
        agent.learn(*agent.memory.data())

    @tf.function(autograph=False, jit_compile=True)
    def products(count):
        inputs = [
            tf.random.stateless_normal([size, x.shape[0]], [1, 2]) for x in kernels
        ]
        errors = [
            tf.random.stateless_normal([size, x.shape[1]], [3, 4]) for x in kernels
        ]

        def body(index, total):
            scale = 1.0 + total * 1e-30  # Else XLA computes the products once.
            for x, kernel, error in zip(inputs, kernels, errors, strict=True):
                total += tf.reduce_sum(tf.matmul(x * scale, kernel)[:1, :1])
                total += tf.reduce_sum(
                    tf.matmul(error * scale, kernel, transpose_b=True)[:1, :1]
                )
                total += tf.reduce_sum(
                    tf.matmul(x * scale, error, transpose_a=True)[:1, :1]
                )
            return index + 1, total

        return tf.while_loop(lambda i, _: i < count, body, (0, 0.0))[1]

    count = tf.constant(settings.epochs * -(-steps // size))
    weights = sum(x.shape.num_elements() for x in kernels)
    gigaflops = 6e-9 * weights * steps * settings.epochs
    return learn, lambda: products(count).numpy(), gigaflops, steps


if __name__ == "__main__":
    main()
