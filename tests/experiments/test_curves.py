"""Curves of runs."""

import dataclasses

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from written_runs import make_run, write_rows

from agents.experiments import curves, groups, records
from agents.tools import config_files


def drawn(monkeypatch, *args, **kwargs):
    """Curves that `plot_runs` draws, by label."""
    found = []
    original = curves.draw
    monkeypatch.setattr(
        curves, "draw", lambda all_, *rest: found.extend(all_) or original(all_, *rest)
    )
    curves.plot_runs(*args, **kwargs)
    return {curve.label: curve for curve in found}


def series(positions, returns):
    """Series of a run without quartiles."""
    x, y = np.array(positions, float), np.array(returns, float)
    return records.Series(x, y, y, y)


def test_aggregate_on_equal_positions():
    steps = [0, 100]
    returns = [[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [9.0, 100.0]]
    curve = curves.aggregate("x", [series(steps, row) for row in returns])
    assert curve.runs == 4
    np.testing.assert_array_equal(curve.x, [0, 100])
    np.testing.assert_allclose(curve.mean, [3.0, 40.0])
    # Quartiles lie at ranks 0.75 and 2.25 of the four sorted values.
    np.testing.assert_allclose(curve.lower, [0.75, 17.5])
    np.testing.assert_allclose(curve.upper, [3.75, 47.5])


def test_aggregate_interpolates_within_the_overlap():
    first = series([0.0, 10.0, 20.0], [0.0, 10.0, 40.0])
    second = series([5.0, 15.0], [100.0, 200.0])
    curve = curves.aggregate("x", [first, second])
    np.testing.assert_array_equal(curve.x, [5, 10, 15])
    # The first run has 5, 10, 25 there, and the second 100, 150, 200.
    np.testing.assert_allclose(curve.mean, [52.5, 80.0, 112.5])
    np.testing.assert_allclose(curve.lower, [28.75, 45.0, 68.75])
    np.testing.assert_allclose(curve.upper, [76.25, 115.0, 156.25])


def test_aggregate_refuses_runs_that_do_not_overlap():
    first = series([0.0, 10.0], [0.0, 0.0])
    second = series([20.0, 30.0], [0.0, 0.0])
    with pytest.raises(records.PlotError, match="pendulum do not overlap"):
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


def test_format_count():
    values = {0: "0", 950: "950", 2000: "2k", 1_500_000: "1.5M", -1000: "-1k"}
    for value, text in values.items():
        assert curves.format_count(value) == text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 30, 100], 16.0),  # The middle two.
        ([5, 1, 9], 5.0),  # All of 5, and a quarter of each neighbor.
        ([4, 8, 1, 2, 100], (0.75 * 2 + 4 + 0.75 * 8) / 2.5),
        ([7], 7.0),
    ],
)
def test_interquartile_mean_by_hand(values, expected):
    found = curves.interquartile_mean(np.array(values, float))
    np.testing.assert_allclose(found, expected)


def test_interval_of_the_interquartile_mean():
    rows = [series([0, 100], [x, 10.0]) for x in range(8)]
    curve = curves.aggregate("x", rows, "iqm")
    np.testing.assert_allclose(curve.mean, [3.5, 10.0])
    assert 0 < curve.lower[0] < 2.6
    assert 4.4 < curve.upper[0] < 7
    assert curve.lower[1] == curve.upper[1] == 10
    again = curves.aggregate("x", rows, "iqm")
    np.testing.assert_array_equal(curve.lower, again.lower)


def test_band_of_one_run_are_the_quartiles_of_its_episodes(tmp_path, monkeypatch):
    run = make_run(tmp_path, "1-pendulum", {})
    rows = [
        {"phase": "evaluate", "step": 0, "score": 5.0},
        {"phase": "evaluate", "step": 100, "score": 7.0, "lower_quartile": 6.0}
        | {"upper_quartile": 9.0},
    ]
    write_rows(run / "metrics.jsonl", rows)
    curve = drawn(monkeypatch, [run], tmp_path / "curve.png")["pendulum"]
    np.testing.assert_array_equal(curve.lower, [5.0, 6.0])
    np.testing.assert_array_equal(curve.upper, [5.0, 9.0])
    assert curves._subtitle([curve], "evaluate", "mean") == (
        "evaluation episodes, mean and quartiles"
    )


def make_config(run, id, rate, seed=0, kind="ppo"):
    """Write the config of a run; return the run."""
    values = {
        "name": run.name.partition("-")[2],
        "seed": seed,
        "environment": {"id": id},
        "train": {"steps": seed},
        "algorithm": {"type": kind, "learning_rate": rate},
    }
    config_files.dump(values, run / "config.yaml")
    return run


def test_runs_are_grouped_by_the_names_in_their_configs(tmp_path, monkeypatch):
    runs = [make_run(tmp_path, f"seed-{seed}-mine", {0: 1.0}) for seed in range(3)]
    for seed, run in enumerate(runs):
        make_config(run, "Left-v0", 0.1, seed)
        values = config_files.load_mapping(run / "config.yaml")
        config_files.dump({**values, "name": "mine"}, run / "config.yaml")
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert {label: curve.runs for label, curve in found.items()} == {"mine": 3}


def test_a_run_that_is_named_twice_counts_once(tmp_path, monkeypatch):
    run = make_run(tmp_path, "1-mine", {0: 1.0})
    (tmp_path / "2-mine").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    runs = [run, "1-mine", "./2-mine"]
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert {label: curve.runs for label, curve in found.items()} == {"mine": 1}


def test_names_are_shown_as_they_are_written(tmp_path):
    names = ["a $^$ b", "_hidden", "$", "plain"]
    found = [curves.aggregate(name, [series([0, 1], [0, 1])]) for name in names]
    several = curves._figure(found, "steps", "evaluate", "mean")
    several.savefig(tmp_path / "curve.png")
    (legend,) = (axes.get_legend() for axes in several.axes)
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == [f"{name} (1 seed)" for name in names]
    unknown = curves.Curve("日本", 2, *[np.zeros(2)] * 4)  # No warnings reach users.
    curves.draw(
        [found[0], unknown], tmp_path / "boxes.png", "steps", "evaluate", "mean"
    )
    for one in found:
        canvas = curves._figure([one], "steps", "evaluate", "mean")
        canvas.savefig(tmp_path / "curve.png")
        assert canvas.axes[0].get_title(loc="left") == one.label


def test_bands_of_single_seeds_among_others_are_told():
    one, other = ([0, 1], [0, 1]), ([0, 1], [2, 3])
    found = [
        curves.aggregate("several", [series(*one), series(*other)], "iqm"),
        curves.aggregate("single", [series(*one)], "iqm"),
    ]
    canvas = curves._figure(found, "steps", "evaluate", "iqm")
    shown = [x.get_text() for x in canvas.axes[0].get_legend().get_texts()]
    assert shown == ["several (2 seeds)", "single (1 seed, band of its episodes)"]


def test_label_says_what_differs_and_each_task_has_a_chart(tmp_path, monkeypatch):
    falling = {"type": "linear", "from": 0.2, "to": 0.0, "over": 5.0}
    runs = [
        make_config(make_run(tmp_path, f"{number}-mine", {0: 1.0, 100: 2.0}), *values)
        for number, values in enumerate(
            [
                ("Left-v0", 0.1, 0),
                ("Left-v0", 0.1, 1),
                ("Left-v0", falling, 0),
                ("Left-v0", "x" * 99, 0),
            ]
        )
    ]
    other = make_run(tmp_path, "4-other", {0: 1.0, 100: 2.0})
    runs.append(make_config(other, "Right-v0", 1, kind="mine:Own"))
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert {label: (x.runs, x.task) for label, x in found.items()} == {
        "mine, learning_rate 0.1": (2, "Left-v0"),
        "mine, learning_rate 0.2 to 0": (1, "Left-v0"),
        f"mine, learning_rate {'x' * groups.LONGEST}...": (1, "Left-v0"),
        "other": (1, "Right-v0"),
    }
    canvas = curves._figure(list(found.values()), "steps", "evaluate", "mean")
    shown = [axes.get_title(loc="left") for axes in canvas.axes]
    assert shown == ["Left-v0, ppo: 3 configs", "Right-v0, Own: other"]
    assert [len(axes.lines) for axes in canvas.axes] == [3, 1]


def test_algorithms_of_a_chart_are_in_its_legend(tmp_path, monkeypatch):
    runs = [make_run(tmp_path, f"{number}-mine", {0: 1.0}) for number in range(2)]
    for run, kind in zip(runs, ("ppo", "trpo"), strict=True):
        make_config(run, "Left-v0", 0.1, kind=kind)
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert list(found) == ["mine, type ppo", "mine, type trpo"]
    canvas = curves._figure(list(found.values()), "steps", "evaluate", "mean")
    assert canvas.axes[0].get_title(loc="left") == "Left-v0: 2 configs"


def test_long_labels_do_not_make_charts_narrow(tmp_path):
    one = {f"{name}{'_' * 150}": name for name in "ab"}
    widths = []
    for labels in ("ab", one):
        series_ = [series([0, 1], [0, 1])]
        found = [curves.aggregate(label, series_) for label in labels]
        canvas = curves._figure(found, "steps", "evaluate", "mean")
        canvas.savefig(tmp_path / "curve.png")
        widths.append(canvas.axes[0].get_position().width)
    assert widths[1] == pytest.approx(widths[0], rel=0.05)


def test_curves_of_one_config_in_several_charts_are_not_told_apart_by_the_task(
    tmp_path, monkeypatch
):
    runs = [make_run(tmp_path, f"{number}-mine", {0: 1.0}) for number in range(2)]
    for run, id in zip(runs, ("Left-v0", "Right-v0"), strict=True):
        make_config(run, id, 0.1)
    labels = []
    original = curves.draw
    monkeypatch.setattr(
        curves,
        "draw",
        lambda x, *rest: labels.extend(y.label for y in x) or original(x, *rest),
    )
    curves.plot_runs(runs, tmp_path / "curve.png")
    assert labels == ["mine", "mine"]


def test_intervals_of_many_points_are_those_of_each(monkeypatch):
    returns = np.random.default_rng(0).normal(size=(4, 7))
    alone = np.stack([curves.interval(x) for x in returns.T], 1)
    monkeypatch.setattr(curves, "POINTS", 3)
    np.testing.assert_allclose(curves.interval(returns), alone)


def test_runs_of_one_seed_are_different_curves(tmp_path, monkeypatch):
    """They are not independent, so no statistic is over them."""
    runs = [make_run(tmp_path, f"{number}-mine", {0: 1.0}) for number in range(5)]
    for run, seed in zip(runs, (0, 1, 0, 0, 2), strict=True):
        make_config(run, "Left-v0", 0.1, seed)
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    expected = {"mine": 3, "mine (2)": 1, "mine (3)": 1}
    assert {label: curve.runs for label, curve in found.items()} == expected


def test_runs_with_other_processes_are_one_curve(tmp_path, monkeypatch):
    runs = [make_run(tmp_path, f"{seed}-mine", {0: 1.0}) for seed in range(2)]
    for seed, run in enumerate(runs):
        make_config(run, "Left-v0", 0.1, seed)
        values = config_files.load_mapping(run / "config.yaml")
        values["environment"] |= {"timeout": 60 + seed, "num_workers": 1 + seed}
        config_files.dump(values, run / "config.yaml")
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    assert {label: curve.runs for label, curve in found.items()} == {"mine": 2}


def test_single_evaluations_have_a_band(tmp_path):
    values = [np.array([x]) for x in (10.0, 50.0, 20.0, 80.0)]
    canvas = curves._figure(
        [curves.Curve("a", 3, *values)], "steps", "evaluate", "mean"
    )
    (lines,) = [x for x in canvas.axes[0].collections if isinstance(x, LineCollection)]
    assert lines.get_segments()[0].tolist() == [[10.0, 20.0], [10.0, 80.0]]


def test_runs_with_other_phases_are_different_curves(tmp_path, monkeypatch):
    runs = [make_run(tmp_path, f"{number}-mine", {0: 1.0}) for number in range(3)]
    for seed, (run, every) in enumerate(zip(runs, (100, 100, 200), strict=True)):
        make_config(run, "Left-v0", 0.1, seed)
        values = config_files.load_mapping(run / "config.yaml")
        values["train"] |= {"eval_every": every, "stop_at": seed}
        config_files.dump(values, run / "config.yaml")
    found = drawn(monkeypatch, runs, tmp_path / "curve.png")
    expected = {"mine, eval_every 100": 2, "mine, eval_every 200": 1}
    assert {label: curve.runs for label, curve in found.items()} == expected


@pytest.mark.parametrize(("tasks", "shape"), [(1, (1, 1)), (3, (1, 3)), (7, (3, 3))])
def test_charts_are_in_three_columns(tasks, shape):
    one = curves.aggregate("mine", [series([0, 1], [0, 1])])
    found = [dataclasses.replace(one, task=f"{x}-v0") for x in range(tasks)]
    canvas = curves._figure(found, "steps", "evaluate", "mean")
    assert canvas.axes[0].get_gridspec().get_geometry() == shape
    assert sum(axes.get_visible() for axes in canvas.axes) == tasks


def test_interval_leaves_out_a_fortieth_on_each_side():
    # All runs of a sample are the one that differs in 1/27, or 3.7%, of the samples.
    returns = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(curves.interval(returns), [[0, 0], [1, 1]])


def test_units_of_time_fit_the_longest_run():
    assert curves.axis("steps", 1e9) == (1, "environment steps")
    units = {299: (1, "seconds"), 300: (60, "minutes"), 10_799: (60, "minutes")}
    for largest, (scale, unit) in {**units, 10_800: (3600, "hours")}.items():
        assert curves.axis("seconds", largest) == (scale, f"wall time [{unit}]")
