"""Measure how fast a config simulates or trains, and what holds it up.

    agents benchmark simulate --config NAME [--backend B] [--num_agents N] [--steps N]
    agents benchmark train --config NAME ...

Prints rates, the parts of a step, the bottleneck, and one line of JSON. Rates are
environment steps per second of the whole batch.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from agents.experiments import config as experiment
from agents.experiments import named, runs, speed
from agents.scripts import commands
from agents.tools import config_files, sections


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and print."""
    args = parse(argv)
    with commands.status("Starting TensorFlow") as say:
        result = measure(args, say)
    for name, text in (
        ("env", "environments alone, random actions"),
        ("limit", result.pop("limit")),
        ("end_to_end", f"{args.mode}, {result['seconds']:.1f} s"),
    ):
        print(f"{name:<12}{result[f'{name}_steps_per_s']:>12,} steps/s  {text}")
    step, parts = result["step_us"], result["parts_us"]
    print(f"one step of the batch: {step:,} us; its parts, each measured alone:")
    for name, value in parts.items():
        print(f"{name:<12}{value:>12,} us {value / step:>8.0%}")
    print(f"compilation {result['compile_seconds']:.1f} s, once")
    print(f"{result['fraction_of_limit']:.0%} of the limit: {result.pop('advice')}")
    print(json.dumps(result))
    return 0


def measure(args: argparse.Namespace, say: Callable[[str], Any]) -> dict[str, Any]:
    """Measure the config of a command line."""
    commands.start_tensorflow()
    config = named.load(args.config, args.set)
    commands.use_threads(config)
    changes = {"backend": args.backend, "num_agents": args.num_agents}
    changes = [f"environment.{k}={v}" for k, v in changes.items() if v is not None]
    config = experiment.resolve(
        config_files.override(sections.to_dict(config), changes)
    )
    runs.require_devices(config)
    commands.use_kernels(runs.sees_images(runs.describe(config)))
    return speed.measure(config, args.mode == "train", args.steps, say)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = commands.Parser("benchmark", description=__doc__)
    parser.add_argument("mode", choices=["simulate", "train"])
    parser.add_argument("--config", required=True, metavar="NAME|FILE.yaml")
    parser.add_argument("--backend", metavar="B", help="environment.backend")
    parser.add_argument("--num_agents", type=commands.COUNT, metavar="N")
    parser.add_argument(
        "--steps",
        type=commands.COUNT,
        metavar="N",
        help="environment steps (default: 5 s worth)",
    )
    commands.add_overrides(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
