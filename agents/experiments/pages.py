"""Self-contained web pages with charts: one file, which needs no network and no server.

Charts are drawn in the browser by uPlot (Leon Sorokin, MIT licence), which is part of
every page; they show values under the mouse, and can be zoomed.
"""

import base64
import dataclasses
import html
import importlib.resources
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agents.experiments import curves

POINTS = 400
"""Maximum points of a curve; longer ones are thinned to means of neighbors."""
ALL_POINTS = 60_000
"""Maximum points of a page, which keeps it below 3 MB."""
LEAST_POINTS = 40
DASHES = ("", "8 4", "2 3", "8 3 2 3")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; media-src data:"
)
"""Rule by which browsers refuse any request of the page."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
<script type="application/json" id="charts">{data}</script>
<!--
{licence}
-->
<script>
{program}
</script>
</body>
</html>
"""


@dataclasses.dataclass(frozen=True)
class Line:
    """Curve in a chart, with the number of its color."""

    number: int
    curve: curves.Curve
    faint: bool = False
    """Mark of lines that are thin, without a band and values under the mouse."""

    def scaled(self, factor: float) -> "Line":
        """Return a line with scaled positions."""
        curve = dataclasses.replace(self.curve, x=self.curve.x * factor)
        return dataclasses.replace(self, curve=curve)


@dataclasses.dataclass(frozen=True)
class Chart:
    """Lines over one axis."""

    unit: str
    lines: list[Line]


class Page:
    """Page that is written from top to bottom; all texts but those of `add` are plain.

    For example:

        page = Page("Title"); page.heading("Scores"); text = page.html()
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._charts: list[Chart] = []

    def add(self, *parts: str) -> None:
        """Add HTML."""
        self._parts += parts

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self.add(f"<h{level}>{escape(text)}</h{level}>")

    def text(self, text: str, kind: str = "") -> None:
        """Add a paragraph, of kind `note`, `quiet` or none."""
        self.add(f'<p class="{kind}">{escape(text)}</p>')

    def keys(self, labels: dict[int, tuple[str, str]]) -> None:
        """Add a legend of labels with remarks, by the numbers of their colors.

        A click on a label hides its curves in all charts of the page.
        """
        buttons = [
            f'<button class="key" aria-pressed="true" data-label="{escape(label)}">'
            f"{_swatch(number)}{escape(label)} "
            f'<span class="quiet">{escape(remark)}</span></button>'
            for number, (label, remark) in labels.items()
        ]
        self.add('<div class="keys">', *buttons, "</div>")

    def grid(self, figures: Iterable[str], small: bool = False) -> None:
        """Add figures side by side."""
        kind = "charts small" if small else "charts"
        self.add(f'<div class="{kind}">', *figures, "</div>")

    def chart(self, title: str, remark: str, chart: Chart) -> str:
        """Return the figure of a chart on this page."""
        self._charts.append(chart)
        return (
            f"<figure><figcaption>{escape(title)} <span>{escape(remark)}</span>"
            f'</figcaption><div data-chart="{len(self._charts) - 1}">'
            '<div class="plot"></div></div></figure>'
        )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table of `cell(...)`; columns that begin with `#` hold numbers."""
        head = [
            f'<th class="number">{escape(x[1:])}</th>'
            if x.startswith("#")
            else f"<th>{escape(x)}</th>"
            for x in columns
        ]
        self.add('<div class="wide"><table><thead><tr>', *head, "</tr></thead><tbody>")
        for row in rows:
            self.add("<tr>", *row, "</tr>")
        self.add("</tbody></table></div>")

    def html(self) -> str:
        """Return the page."""
        count = sum(len(chart.lines) for chart in self._charts)
        points = min(max(ALL_POINTS // max(count, 1), LEAST_POINTS), POINTS)
        data = json.dumps([_values(chart, points) for chart in self._charts])
        return _PAGE.format(
            policy=POLICY,
            title=escape(self._title),
            style=f"{_file('uPlot.min.css')}\n{_file('page.css')}",
            body="\n".join(self._parts),
            data=data.replace("<", "\\u003c"),
            licence=f"uPlot. {_file('uPlot.LICENSE')}",
            program=f"{_file('uPlot.iife.min.js')}\n{_file('page.js')}",
        )


def escape(text: Any) -> str:
    """Return HTML that shows a text."""
    return html.escape(str(text).encode(errors="replace").decode())


def cell(content: Any, kind: str = "") -> str:
    """Return a cell of a table with a text, or right-aligned with a number.

    Kinds are the classes of the style sheet, such as `changed` and `good`.
    """
    if isinstance(content, int | float):
        content, kind = number(content), f"number {kind}".strip()
    return f'<td class="{kind}">{escape(content)}</td>'


def number(value: float) -> str:
    """Return a number with about four digits, or all of an integer."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def video(data: bytes, title: str, remark: str) -> str:
    """Return a figure with an MP4 video, which is part of the page."""
    source = f"data:video/mp4;base64,{base64.b64encode(data).decode()}"
    return (
        f"<figure><figcaption>{escape(title)} <span>{escape(remark)}</span></figcaption>"
        f'<video controls autoplay loop muted playsinline src="{source}"></video></figure>'
    )


def image(data: bytes, text: str) -> str:
    """Return a WebP picture, which is part of the page, with a text for the blind."""
    source = f"data:image/webp;base64,{base64.b64encode(data).decode()}"
    return f'<img alt="{escape(text)}" src="{source}">'


def _swatch(number: int) -> str:
    """Return a piece of line in the style of a curve."""
    colors = len(curves.COLORS)
    dash = DASHES[number // colors % len(DASHES)]
    return (
        '<svg viewBox="0 0 26 10" aria-hidden="true"><path d="M0 5h26" fill="none" '
        f'stroke="var(--line-{number % colors})" stroke-width="3" '
        f'stroke-dasharray="{dash}"/></svg>'
    )


def _values(chart: Chart, points: int) -> dict:
    """Return the data that the program needs to draw a chart."""
    return {
        "unit": chart.unit,
        "lines": [_line(line, points) for line in chart.lines],
    }


def _line(line: Line, points: int) -> dict:
    """Return a line, with its band unless that has no width."""
    curve, names = line.curve, ["x", "mean"]
    if not line.faint and (curve.lower < curve.upper).any():
        names += ["lower", "upper"]
    arrays = {
        name: [_round(x) for x in _thin(getattr(curve, name), points)] for name in names
    }
    head = {"label": curve.label, "color": line.number, "faint": line.faint}
    return head | arrays


def _thin(values: np.ndarray, points: int) -> np.ndarray:
    """Return at most this number of means of neighbors, the last one as it is."""
    if len(values) <= points:
        return values
    starts = np.linspace(0, len(values) - 1, points).astype(int)
    sums = np.add.reduceat(values, starts)
    return sums / np.diff([*starts, len(values)])


def _round(value: float) -> float | int | None:
    """Return a number with six digits, or an integer; None for no number."""
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    if float(value).is_integer():
        rounded = float(value)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _file(name: str) -> str:
    """Return a file that is part of all pages."""
    folder = importlib.resources.files("agents.experiments") / "page"
    return (folder / name).read_text(encoding="utf-8")
