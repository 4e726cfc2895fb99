"""Figure of the data path of a step, `data_path.svg` beside this file.

python docs/figures/data_path.py
"""

import pathlib
from xml.sax import saxutils

FILE = pathlib.Path(__file__).with_suffix(".svg")
SIZE = 860, 500
STEPS = (
    ("1", "begin_episodes(rows)", "forget the past of new episodes"),
    ("2", "perform(rows, observation)", "normalize, network, distribution, sample"),
    ("3", "batch_env.simulate(action)", "one call into Python"),
    ("4", "experience(rows, ...)", "memory.append: one real transition per row"),
    ("5", "end_episodes(rows)", "train when the memory is full"),
)
RETURNED = (
    "The result: reward, terminated,",
    "truncated, the true last observation",
    "and, where an episode ended, the",
    "first observation of the next one.",
)
INK, MUTED, PAPER = "#1f2933", "#5c6975", "#ffffff"
GRAPH, PYTHON, LINE, GREEN = "#e8f1fb", "#eef6ea", "#4a7fb5", "#6a9a52"


def text(x, y, words, size=15, fill=INK, anchor="start", weight="normal", mono=False):
    """Return a line of text."""
    family = "monospace" if mono else "sans-serif"
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-family="{family}" '
        f'font-weight="{weight}" text-anchor="{anchor}" fill="{fill}">'
        f"{saxutils.escape(words)}</text>"
    )


def box(x, y, width, height, fill, stroke=LINE):
    """Return a rectangle with round corners."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def arrow(*points):
    """Return a line through points that ends in an arrow."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2" '
        f'marker-end="url(#tip)"/>'
    )


def draw():
    """Return the figure as text of an SVG file."""
    width, height = SIZE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        "<title>The data path of a step</title>",
        '<defs><marker id="tip" markerWidth="6" markerHeight="6" refX="5" refY="3" '
        f'orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
        box(20, 20, 560, 460, GRAPH),
        text(40, 48, "simulate: one TensorFlow graph", 17, weight="bold"),
        text(40, 70, "a loop over steps of the batch; all rows at once", 13, MUTED),
        box(640, 206, 200, 120, PYTHON, GREEN),
        text(656, 234, "environments", 17, weight="bold"),
        text(656, 258, "NumPy, no TensorFlow:", 13, MUTED),
        text(656, 276, "worker processes,", 13, MUTED),
        text(656, 294, "native threads, or", 13, MUTED),
        text(656, 312, "the process of the trainer", 13, MUTED),
    ]
    for index, (number, call, meaning) in enumerate(STEPS):
        y = 90 + 74 * index
        inner = call.startswith("batch_env")
        parts += [
            box(64, y, 480, 56, *((PYTHON, GREEN) if inner else (PAPER,))),
            text(80, y + 34, number, 16, MUTED, weight="bold"),
            text(104, y + 24, call, 15, mono=True),
            text(104, y + 44, meaning, 13, MUTED),
        ]
        if index:
            parts.append(arrow((300, y - 18), (300, y - 2)))
    parts += [
        arrow((544, 256), (638, 256)),
        text(591, 248, "actions", 12, MUTED, "middle"),
        arrow((640, 276), (546, 276)),
        *(
            text(600, 356 + 17 * index, words, 13, MUTED)
            for index, words in enumerate(RETURNED)
        ),
        arrow((64, 414), (40, 414), (40, 118), (62, 118)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(draw())
