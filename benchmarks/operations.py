"""Operations that one step of `simulate` runs in the graph, by the line that made them.

    python benchmarks/operations.py [--config NAME ...] [--set KEY=VALUE ...] [--lines]

Counts the operations of the loop body while training, except constants, for each part
of a step. Branches count as one operation, since they rarely run. With `--lines`, lists
them line by line. Times of the parts: `agents benchmark train --config NAME`.
"""

import argparse
import collections
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parents[1]
FREE = {"Const", "Identity", "NoOp", "Placeholder"}
"""Types of operations that do nothing in a step."""
PARTS = {
    "simulate": "crossing",
    "perform": "acting",
    "experience": "remembering",
    "begin_episodes": "beginning",
    "end_episodes": "ending",
}
"""Parts of a step by the function in which they were made, the outermost one first."""


def main() -> None:
    """Count and print."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(HERE))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ["cheetah_clip", "cheetah", "cartpole_dqn", "cheetah_sac"]
    parser.add_argument("--config", nargs="+", default=names, metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--lines", action="store_true", help="list all lines")
    args = parser.parse_args()
    for name in args.config:
        body = loop_body(name, args.set)
        counted = [x for x in body if x.type not in FREE]
        parts = collections.Counter(part(x) for x in counted)
        text = ", ".join(f"{count} {name}" for name, count in parts.most_common())
        constants = sum(x.type == "Const" for x in body)
        print(f"{name}: {len(counted)} operations ({text}), {constants} constants")
        if args.lines:
            places = collections.Counter((part(x), *place(x), x.type) for x in counted)
            for (section, file, function, kind), count in sorted(places.items()):
                print(f"  {section:<12}{file:<40}{function:<24}{kind} x {count}")


def loop_body(name: str, overrides: list[str]) -> list:
    """Operations of one step of a config in training."""
    import tensorflow as tf

    from agents.experiments import named, runs
    from agents.tools import simulation

    config = named.load(name, overrides)
    agent = runs.algorithm(config, runs.describe(config))
    batch = runs.environments(config)
    try:
        tools = batch, agent
        current = simulation._traced(simulation._begin, *tools)(*tools, True)
        body = simulation._program if batch.compiled else simulation._graph
        traced = simulation._traced(body, *tools).get_concrete_function(
            *tools, tf.constant(1), True, current
        )
    finally:
        batch.close()
    loops = [x for x in traced.graph.get_operations() if x.type.endswith("While")]
    bodies = [x._body_graph.get_operations() for x in loops]
    return max(bodies, key=len)


def frames(operation) -> list:
    """Places in this package that led to an operation, the outermost one first."""
    root = str(HERE / "agents")
    return [x for x in operation.traceback if x.filename.startswith(root)]


def part(operation) -> str:
    """Part of a step to which an operation belongs."""
    inside = False
    for frame in frames(operation):
        inside |= frame.name in ("_together", "_in_turns")
        if inside and frame.name in PARTS:
            return PARTS[frame.name]
    return "loop"


def place(operation) -> tuple[str, str]:
    """File with line, and function, that made an operation."""
    frame = frames(operation)[-1]
    path = pathlib.Path(frame.filename).relative_to(HERE)
    return f"{path}:{frame.lineno}", frame.name


if __name__ == "__main__":
    main()
