"""Film episodes of a trained policy: `visualize --logdir RUN --outdir OUT`."""

import pathlib
import sys
from collections.abc import Sequence

from agents.experiments import evaluation
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Write one video per episode and `episodes.json`, and print their paths."""
    parser = commands.episodes_parser("visualize", __doc__, num_episodes=3)
    parser.add_argument("--outdir", required=True, metavar="OUT", help="for the videos")
    args = parser.parse_args(argv)
    with commands.status("Starting TensorFlow") as say:
        commands.start_tensorflow()
        films = evaluation.visualize(
            *(args.logdir, args.outdir, args.num_episodes, args.checkpoint),
            *(args.stochastic, args.seed, say),
        )
    for entry in films:
        print(f"return {entry['return']:>10,.1f}  {entry['length']} steps  ", end="")
        print(pathlib.Path(args.outdir) / entry["file"])
    print(f"Wrote {pathlib.Path(args.outdir) / 'episodes.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
