"""Training of runs."""

import dataclasses
import pathlib
import re
import tomllib

import pytest
import tensorflow as tf

from agents.algorithms import a2c
from agents.experiments import display, named, runs, training, writers
from agents.tools import algorithm, checkpoint, config_files, sections
from agents.tools import config as config_


def test_new_directory_holds_the_complete_config(tmp_path):
    config = named.load("debug", ["train.steps=77"], seed=5)
    training.prepare(tmp_path / "run", config)
    values = config_files.load(tmp_path / "run" / "config.yaml")
    assert values == sections.to_dict(config)
    assert values["train"]["steps"] == 77
    assert values["seed"] == 5
    training.prepare(tmp_path / "run", config)  # The same config may go on.
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.yaml",
        "origin.json",
        "versions.txt",
    ]


@pytest.mark.parametrize("error", [config_.ConfigError, KeyboardInterrupt])
def test_directory_of_a_run_that_does_not_begin_is_removed(tmp_path, error):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "config.yaml").touch()
    for name in ("new", "old"):
        with pytest.raises(error), training.removed_unless_begun(tmp_path / name):
            raise error("It is wrong.")
    assert [x.name for x in tmp_path.iterdir()] == ["old"]


def test_versions_are_of_our_distribution():
    path = pathlib.Path(__file__).parents[2] / "pyproject.toml"
    name = tomllib.loads(path.read_text())["project"]["name"]
    assert f"\n{name} " in training.versions()


def test_run_may_become_longer_and_stop_elsewhere(tmp_path):
    def values():
        return config_files.load(tmp_path / "config.yaml")

    def prepare(*changes):
        config = named.load("debug", ["train.steps=77", *changes])
        training.prepare(tmp_path, config)
        return sections.to_dict(config)

    prepare()
    for changes in (["train.stop_at=30"], ["train.steps=99", "train.stop_at=5"]):
        assert values() != prepare(*changes) == values()
    with pytest.raises(runs.RunError, match="config: train.steps: 99 -> 77; use"):
        prepare()
    with pytest.raises(runs.RunError, match="config: seed: 0 -> 3; use"):
        prepare("train.steps=200", "seed=3")
    assert values()["train"]["steps"] == 99


def test_curve_is_drawn_during_the_run(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(training, "DRAWING", 0.0)
    monkeypatch.setattr(
        training.curves,
        "plot_runs",
        lambda logdirs, path: drawn.append((*logdirs, path)),
    )
    config = named.load("debug", ["train.steps=512", "environment.backend=serial"])
    training.prepare(tmp_path, config)
    with display.Display(tmp_path, config, True) as view:
        description = runs.describe(config)
        with training.Training(tmp_path, config, description, view) as run:
            run.run()
    assert drawn == [(tmp_path, tmp_path / "curve.png")] * 4


@dataclasses.dataclass(frozen=True)
class Config(a2c.Config):
    type: str = f"{__name__}:Own"


class Own(a2c.A2C):
    METRICS = (*a2c.A2C.METRICS, "spread")

    def value_loss(self, items):
        loss, metrics = super().value_loss(items)
        return loss, {**metrics, "spread": tf.math.reduce_std(items["value"])}


class Small(algorithm.Algorithm):
    def __init__(self):
        super().__init__(("loss", "entropy"))


def test_metrics_of_own_classes_are_shown(tmp_path, capsys):
    settings = ("network=small", "jit=false", f"type={__name__}:Own")
    settings = [f"algorithm.{x}" for x in settings]
    config = named.load("debug", [*settings, "environment.backend=serial"])
    training.prepare(tmp_path, config)
    view, description = display.Display(tmp_path, config, False), runs.describe(config)
    with view, training.Training(tmp_path, config, description, view) as run:
        run.run()
    lines = capsys.readouterr().out.splitlines()
    lines = [x for x in lines if re.match("(train|evaluate) .* return ", x)]
    assert [x.split()[0] for x in lines] == ["train", "evaluate"] * 2
    for line in lines[::2]:
        assert re.search(r" spread \d\S*  \d+ episodes  kl ", line)
    assert training.own_metrics(Small()) == ["loss", "entropy"]


class Killed(Exception):
    """Stands in for the end of the process."""


def test_phase_that_is_repeated_is_published_once(tmp_path, monkeypatch):
    config = named.load("debug", ["environment.backend=serial", "algorithm.jit=false"])
    training.prepare(tmp_path, config)
    description, view = runs.describe(config), display.Display(tmp_path, config, True)
    published = []

    class Writer:
        def __init__(self, logdir):
            pass

        def write(self, phase, step, scalars):
            published.append((phase, step))

        def close(self):
            pass

    monkeypatch.setattr(writers, "TensorBoard", Writer)
    save = checkpoint.Checkpoints.save

    def killed(self, step, *arguments):
        if step == 512:
            raise Killed
        return save(self, step, *arguments)

    monkeypatch.setattr(checkpoint.Checkpoints, "save", killed)
    broken = training.Training(tmp_path, config, description, view)
    with broken, pytest.raises(Killed):
        broken.run()
    expected = [("train", 256), ("evaluate", 256)]
    assert published == expected
    monkeypatch.setattr(checkpoint.Checkpoints, "save", save)
    with training.Training(tmp_path, config, description, view) as run:
        run.run()
    assert published == [*expected, ("train", 512), ("evaluate", 512)]


def test_goal_needs_evaluations():
    with pytest.raises(config_.ConfigError, match="set train.eval_episodes above zero"):
        named.load("debug", ["train.stop_at=30", "train.eval_episodes=0"])
