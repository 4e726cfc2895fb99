"""Draw the learning curves of runs: `plot RUN [RUN ...] --outfile FILE.png`.

Runs of one config form one curve: the mean over seeds and a band between the quartiles.
Runs that have no scores yet are left out.
"""

import sys
from collections.abc import Sequence

from agents.experiments import curves
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, plot the figure and print its path."""
    parser = commands.Parser("plot", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    parser.add_argument("--outfile", required=True, metavar="FILE.png")
    parser.add_argument("--x", choices=("steps", "seconds"), default="steps")
    parser.add_argument(
        "--phase",
        choices=("evaluate", "train"),
        help="scores to draw (default: evaluate if there are any, otherwise train)",
    )
    parser.add_argument(
        "--statistic",
        choices=tuple(curves.STATISTICS),
        default="mean",
        help="over seeds: mean and quartiles, or interquartile mean and 95%% interval",
    )
    args = parser.parse_args(argv)
    with commands.status("Drawing the curves"):
        left_out = curves.plot_runs(
            args.runs, args.outfile, args.x, args.phase, args.statistic
        )
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    print(f"Wrote {args.outfile}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
