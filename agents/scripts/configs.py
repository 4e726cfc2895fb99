"""List the configs, or print one of them completely: `configs`."""

import sys
from collections.abc import Sequence

from agents.experiments import complete, named
from agents.scripts import commands
from agents.tools import config as config_
from agents.tools import config_files, sections


@commands.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Print the names and descriptions of configs, or one complete config as YAML.

    Code that the config names is not imported, so sections of custom algorithms stay
    unchanged.
    """
    parser = commands.Parser("configs", description=__doc__)
    parser.add_argument("config", nargs="?", metavar="NAME|FILE.yaml")
    commands.add_overrides(parser)
    args = parser.parse_args(argv)
    if args.config is None:
        width = max(map(len, named.EXPERIMENTS)) + 2
        docs = {
            name: f.__doc__.splitlines()[0] for name, f in named.EXPERIMENTS.items()
        }
        print("\n".join(f"{name:<{width}}{doc}" for name, doc in docs.items()))
        return 0
    if args.config in named.EXPERIMENTS and not args.set:
        print(complete.text(args.config), end="")
        return 0
    with config_.without_imports():
        config = named.load(args.config, args.set)
    config_files.dump(sections.to_dict(config), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
