"""Train a config, or resume a run: `train --config NAME`."""

import argparse
import contextlib
import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence

from agents.distributed import cluster
from agents.experiments import curves, display, named, records, runs, training
from agents.scripts import commands
from agents.tools import bounds, config_files


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, train, and suggest the next commands."""
    args = parse(argv)
    shown = contextlib.nullcontext if args.quiet else commands.status
    with shown("Starting TensorFlow"):
        commands.start_tensorflow(args.debug)
    config = named.load(args.config, args.set, args.seed)
    used = config
    if args.debug:
        used = runs.in_process(config, args.executor == "ray")
    else:
        commands.use_threads(config)
    runs.require_devices(config)
    if args.timestamp is not None:
        config_files.require_name(args.timestamp, "--timestamp")
    description = runs.describe(used)
    commands.use_kernels(runs.sees_images(description))
    with contextlib.ExitStack() as stack:
        sizes = None
        if args.executor == "ray":
            num_agents = config.environment.num_agents
            sizes = stack.enter_context(
                cluster.connected(args.ray_address, args.num_workers, num_agents)
            )
        logdir = runs.directory(args.logdir, config.name, args.timestamp)
        stack.enter_context(runs.alone(logdir, "--timestamp"))
        words = sys.argv[1:] if argv is None else argv
        with training.removed_unless_begun(logdir):
            training.prepare(logdir, config, shlex.join(["agents", "train", *words]))
            view = stack.enter_context(display.Display(logdir, config, args.quiet))
            run = training.Training(
                *(logdir, used, description, view, sizes, args.num_shards)
            )
        with run, interrupts(run, view):
            run.run()
        if run.stopping:
            view.stopped("Saved.")
            return 130
        finish(logdir, view)
        return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = commands.Parser("train", description=__doc__)
    parser.add_argument(
        "--config", required=True, metavar="NAME|FILE.yaml", help="what to train"
    )
    parser.add_argument(
        "--logdir", default="logdir", metavar="DIR", help="parent of run directories"
    )
    parser.add_argument(
        "--timestamp",
        metavar="T",
        help="prefix of the run directory (default: now); again to resume the run",
    )
    parser.add_argument("--seed", type=commands.SEED, metavar="N")
    commands.add_overrides(parser)
    parser.add_argument(
        "--debug",
        action="store_true",
        help="eager, if possible in one process and thread",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="who acts: this process, or workers on Ray",
    )
    parser.add_argument(
        "--ray_address",
        metavar="HOST:PORT|auto",
        help="cluster of the workers (default: Ray is started here)",
    )
    parser.add_argument(
        "--num_workers",
        type=commands.COUNT,
        metavar="N",
        help="workers on Ray (default: one per free CPU)",
    )
    parser.add_argument(
        "--num_shards",
        type=commands.integer(bounds.WHOLE),
        default=0,
        metavar="N",
        help="processes on Ray that hold a replay memory (default: that of the learner)",
    )
    args = parser.parse_args(argv)
    distributed = args.ray_address or args.num_workers or args.num_shards
    if args.executor == "local" and distributed:
        parser.error(
            "--ray_address, --num_workers and --num_shards need --executor ray"
        )
    return args


@contextlib.contextmanager
def interrupts(run: training.Training, view: display.Display) -> Iterator[None]:
    """Stop after the phase at the first Ctrl-C, and at once at the second.

    The second one ends the process: while TensorFlow traces, an exception could turn
    into another one or be lost.
    """

    def interrupt(*_) -> None:
        if run.stopping:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # The third: no cleanup.
            view.stopped("Stopped at once.")
            view.close()
            run.end_processes()
            os._exit(130)
        run.stopping = True
        view.stopping()

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def finish(logdir: pathlib.Path, view: display.Display) -> None:
    """Draw the curve and suggest the next commands."""
    drawn = True
    try:
        curves.plot_runs([logdir], logdir / "curve.png")
    except records.PlotError as error:
        view.note(f"No curve: {error}")
        drawn = False
    quoted, parent = shlex.quote(str(logdir)), shlex.quote(str(logdir.parent))
    agents = commands.program("agents")
    view.finished(
        [
            f"{agents} evaluate --logdir {quoted}",
            f"{agents} visualize --logdir {quoted} --outdir {quoted}/videos",
            f"{agents} report {quoted} --outdir {quoted}/report",
            f"{commands.program('tensorboard')} --logdir {parent}",
        ],
        drawn=drawn,
    )


if __name__ == "__main__":
    sys.exit(main())
