"""Measure the return of a trained policy: `evaluate --logdir RUN`."""

import json
import sys
from collections.abc import Sequence

from agents.experiments import evaluation
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Run episodes and print a summary; its last line is JSON."""
    parser = commands.episodes_parser("evaluate", __doc__, num_episodes=20)
    args = parser.parse_args(argv)
    with commands.status("Starting TensorFlow") as say:
        commands.start_tensorflow()
        result = evaluation.evaluate(
            *(args.logdir, args.num_episodes, args.checkpoint),
            *(args.stochastic, args.seed, say),
        )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
