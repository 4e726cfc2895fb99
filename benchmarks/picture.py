"""Moving picture of a trained policy beside its learning curve, for the first page.

    agents train --config cheetah_clip --seed 100 --logdir logdir --timestamp picture
    python benchmarks/picture.py logdir/picture-cheetah_clip --outfile docs/figures/cheetah.webp

While the robot moves, the curve is drawn, so that both are understood at a glance.
"""

import argparse
import pathlib
import tempfile
from collections.abc import Iterator

import imageio_ffmpeg
import numpy as np
from matplotlib import figure
from matplotlib.backends import backend_agg
from PIL import Image

from agents.experiments import curves, evaluation, records
from agents.tools import config_files

SIDE = 320
"""Height and width of both halves, in pixels."""
FRAMES, SKIPPED = 120, 40
FPS = 20
DPI = 100


def main() -> None:
    """Film the policy, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--outfile", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.outfile.parent.mkdir(parents=True, exist_ok=True)
    pairs = zip(robot(args.run), curve(args.run), strict=True)
    first, *others = (Image.fromarray(np.hstack(pair)) for pair in pairs)
    options = {"duration": 1000 // FPS, "loop": 0, "quality": 70, "method": 6}
    first.save(args.outfile, save_all=True, append_images=others, **options)
    print(f"Wrote {args.outfile}, {args.outfile.stat().st_size / 1e6:.2f} MB")


def robot(run: pathlib.Path) -> Iterator[np.ndarray]:
    """Yield frames of an episode, uint8 `[SIDE, SIDE, 3]`."""
    with tempfile.TemporaryDirectory() as folder:
        (film,) = evaluation.visualize(run, folder, num_episodes=1)
        frames = imageio_ffmpeg.read_frames(pathlib.Path(folder) / film["file"])
        width, height = next(frames)["size"]
        for index, data in enumerate(frames):
            if SKIPPED <= index < SKIPPED + FRAMES:
                image = Image.frombytes("RGB", (width, height), data)
                yield np.asarray(image.resize((SIDE, SIDE)))


def curve(run: pathlib.Path) -> Iterator[np.ndarray]:
    """Yield frames of the curve as it is drawn, uint8 `[SIDE, SIDE, 3]`."""
    scores = records.phase_scores(records.read_rows(run / "metrics.jsonl"), "evaluate")
    steps, returns = np.array(list(scores.items())).T
    config = config_files.load_mapping(run / "config.yaml")
    title = f"{config['algorithm']['type'].upper()} on {config['environment']['id']}"
    canvas = figure.Figure(figsize=(SIDE / DPI, SIDE / DPI), dpi=DPI, layout="tight")
    axes = canvas.subplots()
    axes.set_title(title, loc="left", fontsize=9, color=curves.INK)
    axes.set_xlabel("environment steps", fontsize=8)
    axes.set_ylabel("mean return", fontsize=8)
    axes.tick_params(labelsize=7)
    curves.decorate(axes)
    axes.xaxis.set_major_formatter(curves.format_count)
    axes.set_xlim(0, steps[-1])
    axes.set_ylim(min(returns.min(), 0), 1.05 * returns.max())
    (line,) = axes.plot([], [], color=curves.COLORS[0], linewidth=2)
    agg = backend_agg.FigureCanvasAgg(canvas)
    for position in np.linspace(steps[0], steps[-1], FRAMES):
        passed = np.append(steps[steps < position], position)
        line.set_data(passed, np.interp(passed, steps, returns))
        agg.draw()
        yield np.asarray(agg.buffer_rgba())[..., :3].copy()


if __name__ == "__main__":
    main()
