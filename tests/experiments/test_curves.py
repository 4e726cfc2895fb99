"""Curves of runs."""

import numpy as np
import pytest
from written_runs import make_run

from agents.experiments import curves


def drawn(monkeypatch, *args, **kwargs):
    """Curves that `plot_runs` draws, by label."""
    found = []
    original = curves._draw
    monkeypatch.setattr(
        curves, "_draw", lambda all_, *rest: found.extend(all_) or original(all_, *rest)
    )
    curves.plot_runs(*args, **kwargs)
    return {curve.label: curve for curve in found}


def test_aggregate_on_equal_positions():
    steps = np.array([0, 100])
    returns = [[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [9.0, 100.0]]
    curve = curves.aggregate("x", [(steps, np.array(row)) for row in returns])
    assert curve.runs == 4
    np.testing.assert_array_equal(curve.x, [0, 100])
    np.testing.assert_allclose(curve.mean, [3.0, 40.0])
    # Quartiles lie at ranks 0.75 and 2.25 of the four sorted values.
    np.testing.assert_allclose(curve.lower, [0.75, 17.5])
    np.testing.assert_allclose(curve.upper, [3.75, 47.5])


def test_aggregate_interpolates_within_the_overlap():
    first = np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 40.0])
    second = np.array([5.0, 15.0]), np.array([100.0, 200.0])
    curve = curves.aggregate("x", [first, second])
    np.testing.assert_array_equal(curve.x, [5, 10, 15])
    # The first run has 5, 10, 25 there, and the second 100, 150, 200.
    np.testing.assert_allclose(curve.mean, [52.5, 80.0, 112.5])
    np.testing.assert_allclose(curve.lower, [28.75, 45.0, 68.75])
    np.testing.assert_allclose(curve.upper, [76.25, 115.0, 156.25])


def test_aggregate_refuses_runs_that_do_not_overlap():
    first = np.array([0.0, 10.0]), np.array([0.0, 0.0])
    second = np.array([20.0, 30.0]), np.array([0.0, 0.0])
    with pytest.raises(curves.PlotError, match="pendulum do not overlap"):
        curves.aggregate("pendulum", [first, second])


def test_runs_of_one_config_are_one_curve(tmp_path, monkeypatch):
    runs = [
        make_run(tmp_path, "1-pendulum", {0: -1000.0, 100: -200.0}),
        make_run(tmp_path, "2-pendulum", {0: -1200.0, 100: -100.0}),
        make_run(tmp_path, "3-cartpole", {0: 20.0, 100: 500.0}),
    ]
    curves = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert set(curves) == {"pendulum", "cartpole"}
    assert curves["pendulum"].runs == 2
    assert curves["cartpole"].runs == 1
    np.testing.assert_allclose(curves["pendulum"].mean, [-1100.0, -150.0])


def test_seconds_come_from_the_rows_of_the_same_step(tmp_path, monkeypatch):
    run = make_run(tmp_path, "1-a", {0: 1.0, 10: 2.0, 20: 3.0}, seconds=[5, 7, 11])
    curves = drawn(monkeypatch, [run], tmp_path / "curve.png", x="seconds")
    np.testing.assert_array_equal(curves["a"].x, [5, 7, 11])
    np.testing.assert_array_equal(curves["a"].mean, [1, 2, 3])


def test_evaluation_is_preferred_and_reports_without_episodes_are_left_out(
    tmp_path, monkeypatch
):
    run = make_run(tmp_path, "1-a", {0: None, 10: 2.0})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "train", "step": 10, "score": 7.0}\n')
        file.write('{"phase": "evaluate", "step": 20, "sc')  # Just being written.
    curves = drawn(monkeypatch, [run], tmp_path / "curve.png")
    np.testing.assert_array_equal(curves["a"].mean, [2.0])
    curves = drawn(monkeypatch, [run], tmp_path / "curve.png", phase="train")
    np.testing.assert_array_equal(curves["a"].mean, [7.0])


def test_training_scores_without_evaluation(tmp_path, monkeypatch):
    run = make_run(tmp_path, "1-a", {10: 7.0}, phase="train")
    curves = drawn(monkeypatch, [run], tmp_path / "curve.png")
    np.testing.assert_array_equal(curves["a"].mean, [7.0])


@pytest.mark.parametrize("end", range(1, 60, 7))
def test_incomplete_last_line_is_left_out(tmp_path, monkeypatch, end):
    run = make_run(tmp_path, "1-a", {0: 1.0, 10: 2.0, 20: 3.0}, seconds=[5, 7, 11])
    for name in ("metrics", "timing"):
        path = run / f"{name}.jsonl"
        *others, last = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*others, last[: min(end, len(last) - 2)]]))
    for x, positions in (("steps", [0, 10]), ("seconds", [5, 7])):
        curves = drawn(monkeypatch, [run], tmp_path / "curve.png", x=x)
        np.testing.assert_array_equal(curves["a"].x, positions)
        np.testing.assert_array_equal(curves["a"].mean, [1, 2])


def test_config_name():
    names = {
        "20250102T030405-pendulum": "pendulum",
        "2025-01-02-cheetah_clip": "cheetah_clip",
        "seed1-my-config": "my-config",
        "pendulum": "pendulum",
    }
    for directory, name in names.items():
        assert curves.config_name(curves.pathlib.Path(directory)) == name


def test_format_count():
    values = {0: "0", 950: "950", 2000: "2k", 1_500_000: "1.5M", -1000: "-1k"}
    for value, text in values.items():
        assert curves.format_count(value) == text
