"""Search for good values of a config: `tune --config NAME --space FILE.yaml`.

Each trial is a run with values that Optuna has chosen. Trials whose best score so far
is below the median of the others at the same step are stopped. The same command
continues a study that was interrupted.
"""

import argparse
import contextlib
import functools
import pathlib
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from agents.experiments import named, runs
from agents.scripts import commands, train
from agents.tools import config_files, processes, sections
from agents.tuning import space, trainer
from agents.tuning import study as study_


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, search, and suggest the next commands."""
    args = parse(argv)
    with commands.status("Starting TensorFlow"):
        study_.require_optuna()
        commands.start_tensorflow()
        config = named.load(args.config, args.set, args.seed)
        space_ = space.load(args.space)
        space_.require(sections.to_dict(config))
        commands.use_kernels(runs.sees_images(runs.describe(config)))
    name = args.name or f"{config.name}-study"
    config_files.require_name(name, "--name")
    directory = pathlib.Path(args.logdir) / name
    with runs.alone(directory, "--name"):
        study_.prepare(directory, config, space_)
        study = study_.Study(
            *(directory, config, space_),
            functools.partial(train_visibly, config.train.steps),
        )
        try:
            study.search(args.trials)
        except KeyboardInterrupt:
            print(
                f"Stopped with {len(study.finished())} of {args.trials} trials "
                "finished. To go on, repeat the command."
            )
            return 130
        winner = study.report()
    path = shlex.quote(str(directory / "best.yaml"))
    print(
        f"Best is trial {winner.number}; the figure is {directory / 'study.png'}. Next:\n"
        f"  {commands.program('agents')} train --config {path}"
    )
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = commands.Parser(
        "tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", required=True, metavar="NAME|FILE.yaml", help="what to train"
    )
    parser.add_argument(
        "--space",
        required=True,
        metavar="FILE.yaml",
        help="config keys with a range or list of choices, such as "
        "'algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}'",
    )
    parser.add_argument(
        "--trials",
        required=True,
        type=commands.COUNT,
        metavar="N",
        help="finished ones in all",
    )
    parser.add_argument(
        "--logdir", default="logdir", metavar="DIR", help="parent of the study"
    )
    parser.add_argument(
        "--name", metavar="STUDY", help="directory in DIR (default: CONFIG-study)"
    )
    parser.add_argument(
        "--seed",
        type=commands.SEED,
        metavar="N",
        help="of the runs and of the choice of values",
    )
    commands.add_overrides(parser)
    return parser.parse_args(argv)


@contextlib.contextmanager
def train_visibly(
    steps: int, directory: pathlib.Path, name: str, chosen: dict[str, Any]
) -> Iterator[Iterator[tuple[int, float]]]:
    """Train like `trainer.train`, and show the progress of a trial on terminals."""

    def shown(scores: Iterator[tuple[int, float]]) -> Iterator[tuple[int, float]]:
        for step, score in scores:
            say(f"{name}: {step:,} of {steps:,} steps, return {score:,.1f}")
            yield step, score

    with (
        commands.status(f"{name}: starting") as say,
        trainer.train(PROGRAM, directory, name, chosen) as scores,
    ):
        yield shown(scores)


TRIAL = (
    "import sys; from agents.scripts import tune; sys.exit(tune.trial(sys.argv[1:]))"
)
PROGRAM = (sys.executable, "-c", TRIAL)
"""Command that trains, for `trainer.train`."""


def trial(argv: Sequence[str]) -> int:
    """Train as long as the process with the id in the first argument lives."""
    parent, *arguments = argv
    watch = threading.Thread(target=processes.watch_parent, args=[int(parent)])
    watch.daemon = True
    watch.start()
    return train.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
