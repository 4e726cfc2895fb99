"""Small moving pictures of trained policies, for the cards of the gallery.

    python benchmarks/animations.py CONFIG [CONFIG ...] [--logdir DIR]

Films an episode of the first seed of `benchmarks/learning.py`, which is trained if it is
not in the log directory, and writes `docs/results/CONFIG.webp`.
"""

import argparse
import itertools
import pathlib
import tempfile
from collections.abc import Iterator

import learning
from PIL import Image, ImageSequence

from agents.experiments import evaluation

HEIGHT = 150
"""Height of a picture, in pixels."""
FRAMES, EVERY = 100, 2
"""Largest number of frames, and frames of the film for one of them."""


def main() -> None:
    """Train, film and write, one config after the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--logdir", type=pathlib.Path, default=learning.LOGDIR)
    args = parser.parse_args()
    for config in args.configs:
        run = learning.train(config, "0", args.logdir, 0)
        outfile = learning.FOLDER / f"{config}.webp"
        write(run, outfile)
        print(f"Wrote {outfile}, {outfile.stat().st_size / 1e3:.0f} kB", flush=True)


def write(run: pathlib.Path, outfile: pathlib.Path) -> None:
    """Film the newest checkpoint of a run."""
    with tempfile.TemporaryDirectory() as folder:
        films = evaluation.visualize(run, folder, num_episodes=1, format="gif")
        with Image.open(pathlib.Path(folder) / films[0]["file"]) as film:
            duration = EVERY * film.info["duration"]
            first, *others = frames(film)
    options = {"duration": duration, "quality": 60, "method": 6}
    first.save(outfile, save_all=True, append_images=others, loop=0, **options)


def frames(film: Image.Image) -> Iterator[Image.Image]:
    """Yield small pictures of some frames of a film."""
    size = HEIGHT * film.width // film.height, HEIGHT
    for frame in itertools.islice(
        ImageSequence.Iterator(film), 0, EVERY * FRAMES, EVERY
    ):
        yield frame.convert("RGB").resize(size)


if __name__ == "__main__":
    main()
