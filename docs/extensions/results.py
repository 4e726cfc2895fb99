"""Sphinx directive that shows results of configs, from the data in `docs/results`.

    ```{results}
    cheetah_clip hopper_clip
    ```

It makes a table of the returns of final policies, with links to the data and the 95%
bootstrap intervals of interquartile means, and shows the learning curves. Configs without
data are named. `benchmarks/learning.py` makes the data, also of variants of a config, such
as `walker_gae`, whose commands are on the page of results.
"""

import collections
import json
import pathlib
from typing import Any

import numpy as np

from agents.experiments import curves, named

FOLDER = pathlib.Path(__file__).parents[1] / "results"


def text(names: list[str]) -> str:
    """Return the results of configs and their variants in Markdown.

    Raises:
      ValueError: for names that are neither configs nor variants with data.
    """
    measured = [x for x in names if (FOLDER / f"{x}.json").exists()]
    if unknown := sorted(set(names) - set(measured) - set(named.EXPERIMENTS)):
        raise ValueError(f"no configs: {', '.join(unknown)}; variants need data")
    parts = [table(measured), *map(curve, measured)] if measured else []
    if others := [f"`{x}`" for x in names if x not in measured]:
        parts.append(f"Configs without committed results: {', '.join(others)}.")
    return "\n\n".join(parts)


def table(names: list[str]) -> str:
    """Return a table of final returns in Markdown, by config and length of the runs."""
    rows = [
        "| config | steps | seeds | mean | interquartile mean (95% interval) | lowest "
        "| highest |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        data = json.loads((FOLDER / f"{name}.json").read_text())
        returns = collections.defaultdict(list)
        for final in data["finals"].values():
            returns[final["step"]].append(final["mean_return"])
        link = f"{{download}}`{name} </results/{name}.json>`"
        for steps, found in sorted(returns.items()):
            ends = map(number, (min(found), max(found)))
            values = np.array(found)
            cells = [link, f"{steps:,}", str(len(found)), number(values.mean())]
            cells += [robust(values), *ends]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def robust(returns: np.ndarray) -> str:
    """Write the interquartile mean of several seeds with its interval."""
    if len(returns) == 1:
        return ""
    low, high = map(number, curves.interval(returns))
    return f"{number(curves.interquartile_mean(returns))} ({low} to {high})"


def number(value: float) -> str:
    """Write a return with three digits or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def curve(name: str) -> str:
    """Return the learning curve of a config in Markdown."""
    image = f"```{{image}} /results/{name}.png\n:alt: Learning curve of {name}\n"
    return f"{image}:width: 75%\n```"


def setup(app: Any) -> dict[str, bool]:
    """Add the directive; Sphinx is imported here, so that the functions do without."""
    from sphinx.util import docutils

    class Results(docutils.SphinxDirective):
        """Directive `results` around names of configs."""

        has_content = True

        def run(self) -> list:
            """Return the nodes of the table and the curves."""
            names = " ".join(self.content).split()
            for name in names:
                self.env.note_dependency(str(FOLDER / f"{name}.json"))
            try:
                return self.parse_text_to_nodes(text(names))
            except ValueError as error:
                raise self.error(str(error)) from error

    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
