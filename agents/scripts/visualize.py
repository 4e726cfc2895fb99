"""Film episodes of a trained policy, or show them in a window.

`visualize --logdir RUN --outdir OUT`, or `visualize --logdir RUN --live`.
"""

import pathlib
import sys
from collections.abc import Sequence

from agents.experiments import evaluation
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Write videos and `episodes.json`, and print their paths; or open a window."""
    parser = commands.episodes_parser("visualize", __doc__, num_episodes=3)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--outdir", metavar="OUT", help="for the videos")
    target.add_argument("--live", action="store_true", help="open a window instead")
    parser.add_argument("--format", choices=evaluation.FORMATS, default="mp4")
    parser.add_argument(
        "--overlay", action="store_true", help="write step and return onto the frames"
    )
    parser.add_argument(
        "--grid", action="store_true", help="all episodes side by side in one video"
    )
    args = parser.parse_args(argv)
    style = args.format, args.overlay, args.grid
    if args.live and style != ("mp4", False, False):
        parser.error("--live writes no video, so has no --format, --overlay or --grid")
    chosen = args.num_episodes, args.checkpoint, args.stochastic, args.seed
    with commands.status("Starting TensorFlow") as say:
        commands.start_tensorflow()
        if args.live:
            episodes = evaluation.watch(args.logdir, *chosen, say)
        else:
            where = args.logdir, args.outdir
            episodes = evaluation.visualize(*where, *chosen, say, *style)
    for entry in episodes:
        print(f"return {entry['return']:>10,.1f}  {entry['length']} steps", end="")
        print(f"  {pathlib.Path(args.outdir) / entry['file']}" if args.outdir else "")
    if args.outdir:
        print(f"Wrote {pathlib.Path(args.outdir) / 'episodes.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
