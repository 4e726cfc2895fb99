"""Write a policy so that it runs elsewhere: `export --logdir RUN --outdir DIR`."""

import pathlib
import sys
from collections.abc import Sequence

from agents.experiments import policy, runs
from agents.scripts import commands


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Write the policy and `card.md`, which describes it."""
    parser = commands.policy_parser("export", __doc__)
    parser.add_argument("--outdir", required=True, metavar="DIR", help="new or empty")
    parser.add_argument("--format", default="saved_model", choices=policy.FORMATS)
    args = parser.parse_args(argv)
    with commands.status("Starting TensorFlow") as say:
        commands.start_tensorflow()
        say("Loading the policy")
        config = runs.read_config(args.logdir)
        description = runs.describe(config)
        agent, state = runs.policy(args.logdir, config, description, 1, args.checkpoint)
        facts = {
            "algorithm": config.algorithm.type,
            "environment": config.environment.id,
            "trained for": f"{state['step']:,} environment steps",
            "config": config.name,
        }
        spaces = description.observation_space, description.action_space
        say(f"Writing {args.outdir}")
        policy.ExportablePolicy(agent, *spaces).write(args.outdir, args.format, facts)
    print(
        f"Wrote {args.outdir}; {pathlib.Path(args.outdir) / 'card.md'} says what it is."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
