"""Write a page about runs: `report RUN [RUN ...] --outdir DIR`.

The page is one file, which needs no network or server. Runs may still be in progress.
"""

import shlex
import sys
from collections.abc import Sequence

from agents.experiments import records, report
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, write the page and print its path."""
    parser = commands.Parser("report", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    parser.add_argument("--outdir", required=True, metavar="DIR", help="for index.html")
    parser.add_argument(
        "--no_video", action="store_true", help="do not film the policies"
    )
    args = parser.parse_args(argv)
    command = shlex.join(
        ["agents", "report", *(sys.argv[1:] if argv is None else argv)]
    )
    with commands.status("Reading the runs") as say:
        runs = [records.read(path) for path in args.runs]
        if not args.no_video:
            say("Starting TensorFlow")
            commands.start_tensorflow()
        file = report.write(runs, args.outdir, not args.no_video, command, say)
    print(f"Wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
