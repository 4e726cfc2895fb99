"""The page of results is made from the committed data."""

import contextlib
import importlib.util
import json
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from PIL import Image

from agents.experiments import evaluation, named

ROOT = pathlib.Path(__file__).parents[1]


def load(name):
    """The module of a command."""
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Other commands import it by its name.
learning = sys.modules["learning"] = load("learning")
gallery = load("gallery")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The page."""
    outdir = tmp_path_factory.mktemp("gallery")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gallery.py", "--outdir", str(outdir)])
        gallery.main()
    return (outdir / "index.html").read_text()


def test_all_results_have_a_card(text):
    names = {x.stem for x in gallery.FOLDER.glob("*.csv")} - {"paper"}
    assert "atari_pong_impala_ray" in names  # A variant of a config.
    assert len(names) > 20
    for name in names:
        assert f"<figcaption>{name} <span>" in text
    assert text.count("<div data-chart=") == len(names)
    assert len(text) < 2_000_000
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?\s*(?:https?:)?//", text)


def test_cards_say_how_to_get_the_result_and_how_long_it_takes():
    result = {**gallery.result("pendulum"), "returns": np.array([1.0, 2.0, 3.0])}
    made = gallery.pages.Page("Page")
    card = gallery.card(made, "pendulum", {**result, "seconds": {"0": 50, "1": 70}})
    assert "<p>Return 2 (1 to 3), 3 seeds, 300,000 steps</p>" in card
    assert "<p>Wall time: 60 s per seed</p>" in card
    assert "<code>python benchmarks/learning.py pendulum --seeds" in card
    result.pop("seconds", None)
    card = gallery.card(made, "pendulum", {**result, "returns": np.array([1.0])})
    assert (
        "<p>Return 1, 1 seed, 300,000 steps</p><p>Wall time: not recorded</p>" in card
    )


def test_cards_show_moving_pictures(text):
    films = list(gallery.FOLDER.glob("*.webp"))
    assert films
    assert text.count('src="data:image/webp;base64,') == len(films)
    for film in films:
        assert film.stem in named.EXPERIMENTS
        with Image.open(film) as image:
            assert image.n_frames > 10


def test_animations_are_small(tmp_path, monkeypatch):
    animations = load("animations")

    def visualize(run, outdir, num_episodes, format):
        shades = (97 * index % 256 for index in range(250))  # All differ.
        first, *others = (Image.new("L", (320, 304), shade) for shade in shades)
        path = pathlib.Path(outdir, f"a.{format}")
        first.save(path, save_all=True, append_images=others, duration=20)
        return [{"file": path.name}]

    monkeypatch.setattr(evaluation, "visualize", visualize)
    animations.write(tmp_path, tmp_path / "a.webp")
    with Image.open(tmp_path / "a.webp") as image:
        assert (image.n_frames, image.size) == (100, (157, 150))


def test_published_scores_stand_beside_ours(text):
    published = json.loads((gallery.FOLDER / "published.json").read_text())
    assert set(published) <= set(named.EXPERIMENTS)
    for name, entries in published.items():
        assert gallery.data(name).exists()
        for entry in entries:
            assert entry["source"] in text
            assert f">{name}</td>" in text
    assert ">atari_pong_impala_ray</td>" in text  # A variant is on the same task.
    assert text.count('class="number good"') == text.count(">inside<") + text.count(
        ">above<"
    )


@pytest.mark.parametrize(
    ("returns", "score", "expected"),
    [
        ([10.0, 20.0, 30.0], 5.0, "above"),
        ([10.0, 20.0, 30.0], 30.0, "inside"),
        ([10.0, 20.0, 30.0], 31.0, "below"),
        ([500.0, 500.0, 500.0], 500.0, "inside"),
        ([17.0], 18.0, "below"),
    ],
)
def test_position_of_a_published_score(returns, score, expected):
    assert gallery.position(np.array(returns), score) == expected


def test_only_the_longest_runs_count():
    values = gallery.result("cheetah_sac")
    assert values["steps"] == 1_000_000
    finals = values["finals"].values()
    assert len(values["returns"]) == sum(x["step"] == 1_000_000 for x in finals)


def test_table_of_results_is_that_of_the_data():
    page = (gallery.FOLDER / "README.md").read_text()
    assert learning.table() in page, "run `python benchmarks/learning.py`"


def test_line_of_results_is_about_the_longest_runs():
    pairs = zip((1.0, 2.0, 3.0, 60.0), (9, 9, 9, 5), strict=True)
    finals = {str(x): {"mean_return": x, "step": step} for x, step in pairs}
    line = learning.line("cartpole", {"finals": finals})
    cells = [x.strip() for x in line.split("|")[1:-1]]
    assert cells[1:4] == ["CartPole-v1", "9", "3"]
    assert cells[4:6] == ["2.00 (1.00 to 3.00)", "1.00, 2.00, 3.00"]
    assert cells[6:] == ["[curves](cartpole.csv), [runs](cartpole.json)"]


def test_results_name_the_code_that_trained_them(tmp_path, monkeypatch):
    run = tmp_path / "seed3-pendulum"

    def trained(by, *phases):
        def training(command):
            run.mkdir(exist_ok=True)
            with open(run / "metrics.jsonl", "a") as file:
                for phase in phases:
                    file.write(json.dumps({"phase": phase, "step": 1}) + "\n")
            if phases == ("train",):
                raise KeyboardInterrupt

        monkeypatch.setattr(learning, "commit", lambda: by)
        monkeypatch.setattr(learning, "run_command", training)
        with contextlib.suppress(KeyboardInterrupt):
            learning.train("pendulum", "3", tmp_path, 0, "seed3", [])
        return learning.commits(run)

    assert trained("aaa", "train") == {"aaa"}
    assert trained("bbb", "evaluate") == {"aaa", "bbb"}
    assert trained("ccc") == {"aaa", "bbb"}
    (run / learning.COMMITS).unlink()
    assert trained("ddd", "train", "evaluate") == {"ddd", "unknown"}


def run_python(code):
    """Run Python in a process, as the benchmark runs a training."""
    learning.run_command([sys.executable, "-c", textwrap.dedent(code)])


def test_a_benchmark_stops_when_its_command_fails():
    run_python("")
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        run_python("raise SystemExit(3)")


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_benchmark_that_is_stopped_waits_for_its_command(tmp_path, number, error):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error) as caught:
        run_python(f"""
            import os, pathlib, signal, time
            def stop(*_):
                time.sleep(0.5)
                pathlib.Path({str(tmp_path / "saved")!r}).touch()
                raise SystemExit(0)
            signal.signal(signal.SIGTERM, stop)
            time.sleep(0.5)
            os.kill(os.getppid(), {int(number)})
            {"stop()" if number == signal.SIGINT else "time.sleep(60)"}
        """)
    if error is SystemExit:
        assert caught.value.code == 143
    assert (tmp_path / "saved").exists()
    assert signal.getsignal(signal.SIGTERM) == before
