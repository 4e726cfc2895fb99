"""The command that draws curves."""

import numpy as np
from matplotlib import image
from written_runs import make_run

from agents.experiments import curves
from agents.scripts import plot


def test_picture_shows_the_curve(tmp_path, capsys):
    run = make_run(tmp_path, "1-pendulum", {0: -1000.0, 100_000: -200.0}, [1, 60])
    for axis in ("steps", "seconds"):
        outfile = tmp_path / "pictures" / f"{axis}.png"
        assert plot.main([str(run), "--outfile", str(outfile), "--x", axis]) == 0
        assert str(outfile) in capsys.readouterr().out
        pixels = image.imread(outfile)  # [height, width, 4]
        assert pixels.shape[0] >= 480
        assert pixels.shape[1] >= 640
        color = (
            np.array([int(curves.COLORS[0][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        )
        distance = np.abs(pixels[..., :3] - color).max(-1)
        assert (distance < 0.01).sum() > 1000


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


def test_runs_without_scores_are_left_out(tmp_path, capsys):
    runs = [
        make_run(tmp_path, "1-a", {0: 1.0}),
        make_run(tmp_path, "2-a", {0: 1.0}, phase="train"),
        make_run(tmp_path, "3-a", {0: None}),
        tmp_path / "4-a",
    ]
    runs[3].mkdir()
    (runs[3] / "config.yaml").write_text("name: a\n")
    outfile = tmp_path / "curve.png"
    assert plot.main([*map(str, runs), "--outfile", str(outfile)]) == 0
    output = capsys.readouterr()
    assert output.out == f"Wrote {outfile}\n"
    assert output.err.splitlines() == [
        f"left out: {run} has no score of the evaluate phase{end}."
        for run, end in zip(
            runs[1:], [", but of phase train", " yet", " yet"], strict=True
        )
    ]


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
    endless = make_run(tmp_path, "6-a", {0: 1.0, 10: 2.0})
    (endless / "timing.jsonl").write_text(
        '{"phase": "evaluate", "step": 0, "seconds": NaN}\n'
        f'{{"phase": "evaluate", "step": 10, "seconds": {"9" * 400}}}\n'
    )
    png = str(tmp_path / "curve.png")
    cases = [
        ([endless, "--outfile", png, "--x", "seconds"], "has no time of the evaluate"),
        ([garbage, "--outfile", png], "line 1: expected a JSON object"),
        ([without_step, "--outfile", png], "line 1: expected a JSON object"),
        ([empty, "--outfile", png], "it has no metrics.jsonl"),
        ([tmp_path / "missing", "--outfile", png], "it has no metrics.jsonl"),
        ([no_score, "--outfile", png], "has no score of the train phase yet"),
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
