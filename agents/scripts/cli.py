"""The `agents` command: `agents SUBCOMMAND [ARGS]`."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import agents
from agents.tools import errors

SUBCOMMANDS = {
    "configs": "list the configs, or print one completely",
    "train": "train a config, or resume a run",
    "tune": "search for good values of a config",
    "evaluate": "measure the return of a trained policy",
    "visualize": "film episodes of a trained policy",
    "export": "write a trained policy so that it runs elsewhere",
    "plot": "draw the learning curves of runs",
    "report": "write a page about runs: curves, scores, configs, videos",
    "benchmark": "measure speed, and what holds it up",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Import only the module of the subcommand, and run it.

    Returns:
      Exit code of the subcommand; 2 without a valid subcommand.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print("error: no subcommand; see `agents --help`.", file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        print(agents.__version__)
        return 0
    if name not in SUBCOMMANDS:
        print(_unknown(name), file=sys.stderr)
        return 2
    if sys.path[:1] != [os.getcwd()]:  # Modules there come first, as by `python -m`.
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(f"agents.scripts.{name}").main(rest)
    except KeyboardInterrupt:  # While it is imported.
        return 130


def _help() -> str:
    """Return the text of `agents --help`."""
    width = max(map(len, SUBCOMMANDS)) + 2
    lines = [f"  {name:<{width}}{text}" for name, text in SUBCOMMANDS.items()]
    return "\n".join(
        [
            "usage: agents SUBCOMMAND [ARGS]",
            "",
            *lines,
            "",
            "`agents SUBCOMMAND --help` explains the arguments.",
        ]
    )


def _unknown(name: str) -> str:
    """Return one line about an unknown subcommand."""
    nearest = difflib.get_close_matches(name[:100], SUBCOMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "see `agents --help`."
    return f"error: {errors.line(f'unknown subcommand {name!r}; {hint}')}"


if __name__ == "__main__":
    sys.exit(main())
