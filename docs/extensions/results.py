"""Sphinx directive that shows results of presets, from the data in `docs/results`.

    ```{results} cheetah_clip hopper_clip
    ```

It makes a table of the returns of final policies, with links to the data, and the
learning curves. `benchmarks/learning.py` makes the data.
"""

import json
import pathlib
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).parents[1] / "results"


def table(names: list[str]) -> str:
    """Return a table of final returns in Markdown."""
    rows = [
        "| preset | environment steps | seeds | mean | lowest | highest | measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in names:
        data = json.loads((FOLDER / f"{name}.json").read_text())
        finals = data["finals"].values()
        returns = np.array([final["mean_return"] for final in finals])
        steps = sorted({final["step"] for final in finals})
        cells = (
            f"{{download}}`{name} </results/{name}.json>`",
            " or ".join(f"{x:,}" for x in steps),
            str(len(returns)),
            *(number(x) for x in (returns.mean(), returns.min(), returns.max())),
            data["date"],
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def number(value: float) -> str:
    """Write a return with three digits or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def curves(names: list[str]) -> str:
    """Return the images of learning curves in Markdown."""
    lines = [f"![Learning curve of {x}](/results/{x}.png)" for x in names]
    return "\n\n".join(lines)


def setup(app: Any) -> dict[str, bool]:
    """Add the directive; Sphinx is imported here, so that the functions do without."""
    from sphinx.util import docutils

    class Results(docutils.SphinxDirective):
        """Directive `results` with names of presets."""

        required_arguments = 1
        final_argument_whitespace = True

        def run(self) -> list:
            """Return the nodes of the table and the curves."""
            names = self.arguments[0].split()
            for name in names:
                self.env.note_dependency(str(FOLDER / f"{name}.json"))
            return self.parse_text_to_nodes(f"{table(names)}\n\n{curves(names)}")

    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
