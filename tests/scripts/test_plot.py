import json

import numpy as np
import pytest
from matplotlib import image

from agents.scripts import plot


def make_run(directory, name, scores, seconds=None, phase="evaluate"):
    """Run directory with scores by step, and seconds for the same steps."""
    run = directory / name
    run.mkdir(parents=True)
    rows = [
        {"phase": phase, "step": step, "score": score, "length": 200.0, "episodes": 20}
        for step, score in scores.items()
    ]
    write_rows(run / "metrics.jsonl", rows)
    if seconds is not None:
        pairs = zip(scores, seconds, strict=True)
        rows = [{"phase": phase, "step": a, "seconds": b} for a, b in pairs]
        write_rows(run / "timing.jsonl", rows)
    return run


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def drawn(monkeypatch, *args, **kwargs):
    """Curves that `plot_runs` draws, by label."""
    curves = []
    original = plot._draw
    monkeypatch.setattr(
        plot, "_draw", lambda all_, *rest: curves.extend(all_) or original(all_, *rest)
    )
    plot.plot_runs(*args, **kwargs)
    return {curve.label: curve for curve in curves}


def test_aggregate_on_equal_positions():
    steps = np.array([0, 100])
    returns = [[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [9.0, 100.0]]
    curve = plot.aggregate("x", [(steps, np.array(row)) for row in returns])
    assert curve.runs == 4
    np.testing.assert_array_equal(curve.x, [0, 100])
    np.testing.assert_allclose(curve.mean, [3.0, 40.0])
    # Quartiles lie at ranks 0.75 and 2.25 of the four sorted values.
    np.testing.assert_allclose(curve.lower, [0.75, 17.5])
    np.testing.assert_allclose(curve.upper, [3.75, 47.5])


def test_aggregate_interpolates_within_the_overlap():
    first = np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 40.0])
    second = np.array([5.0, 15.0]), np.array([100.0, 200.0])
    curve = plot.aggregate("x", [first, second])
    np.testing.assert_array_equal(curve.x, [5, 10, 15])
    # The first run has 5, 10, 25 there, and the second 100, 150, 200.
    np.testing.assert_allclose(curve.mean, [52.5, 80.0, 112.5])
    np.testing.assert_allclose(curve.lower, [28.75, 45.0, 68.75])
    np.testing.assert_allclose(curve.upper, [76.25, 115.0, 156.25])


def test_aggregate_refuses_runs_that_do_not_overlap():
    first = np.array([0.0, 10.0]), np.array([0.0, 0.0])
    second = np.array([20.0, 30.0]), np.array([0.0, 0.0])
    with pytest.raises(plot.PlotError, match="pendulum do not overlap"):
        plot.aggregate("pendulum", [first, second])


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


def test_picture_shows_the_curve(tmp_path, capsys):
    run = make_run(tmp_path, "1-pendulum", {0: -1000.0, 100_000: -200.0}, [1, 60])
    for axis in ("steps", "seconds"):
        outfile = tmp_path / "pictures" / f"{axis}.png"
        assert plot.main([str(run), "--outfile", str(outfile), "--x", axis]) == 0
        assert str(outfile) in capsys.readouterr().out
        pixels = image.imread(outfile)  # [height, width, 4]
        assert pixels.shape[0] >= 480
        assert pixels.shape[1] >= 640
        color = np.array([int(plot.COLORS[0][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        distance = np.abs(pixels[..., :3] - color).max(-1)
        assert (distance < 0.01).sum() > 1000


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


def test_picture_on_a_full_disk_is_one_line_and_leaves_the_old_one(
    tmp_path, capsys, full_disk
):
    run = make_run(tmp_path, "1-a", {0: 1.0, 10: 2.0})
    outfile = tmp_path / "out" / "curve.png"
    assert plot.main([str(run), "--outfile", str(outfile)]) == 0
    before = outfile.read_bytes()
    capsys.readouterr()
    with full_disk(1000):
        assert plot.main([str(run), "--outfile", str(outfile)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(
        f"error: cannot write {outfile}: File too large; it needs "
    )
    assert errors.count("\n") == 1
    assert outfile.read_bytes() == before
    assert list(outfile.parent.iterdir()) == [outfile]


def test_config_name():
    names = {
        "20250102T030405-pendulum": "pendulum",
        "2025-01-02-cheetah_clip": "cheetah_clip",
        "seed1-my-config": "my-config",
        "pendulum": "pendulum",
    }
    for directory, name in names.items():
        assert plot.config_name(plot.pathlib.Path(directory)) == name


def test_format_count():
    values = {0: "0", 950: "950", 2000: "2k", 1_500_000: "1.5M", -1000: "-1k"}
    for value, text in values.items():
        assert plot.format_count(value) == text


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys):
    good = make_run(tmp_path, "1-a", {0: 1.0})
    empty = tmp_path / "empty"
    empty.mkdir()
    no_score = make_run(tmp_path, "2-a", {0: None})
    broken = make_run(tmp_path, "3-a", {0: 1.0})
    (broken / "metrics.jsonl").write_text('{"phase":\n{"phase": "train"}\n')
    garbage = make_run(tmp_path, "4-a", {0: 1.0})
    (garbage / "metrics.jsonl").write_bytes(b'\xff\x00\n{"phase": "train"}\n')
    without_step = make_run(tmp_path, "5-a", {0: 1.0})
    (without_step / "metrics.jsonl").write_text('{"phase": "train", "score": 1.0}\n')
    png = str(tmp_path / "curve.png")
    cases = [
        ([garbage, "--outfile", png], "line 1: expected a JSON object"),
        ([without_step, "--outfile", png], "line 1: expected a JSON object"),
        ([empty, "--outfile", png], "it has no metrics.jsonl"),
        ([tmp_path / "missing", "--outfile", png], "it has no metrics.jsonl"),
        ([good, no_score, "--outfile", png], "has no score of the evaluate phase"),
        ([broken, "--outfile", png], "line 1: expected a JSON object"),
        ([good, "--outfile", png, "--x", "seconds"], "it has no timing.jsonl"),
        ([good, "--outfile", tmp_path / "curve.txt"], "must end in .png"),
        ([good, "--outfile", good / "metrics.jsonl" / "a.png"], "metrics.jsonl"),
    ]
    for arguments, message in cases:
        assert plot.main([str(argument) for argument in arguments]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: ")
        assert message in output.err
        assert output.err.count("\n") == 1
    assert not (tmp_path / "curve.png").exists()
