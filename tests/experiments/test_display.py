"""Display of runs."""

import io
import logging
import types

import pytest
from rich import console

from agents.experiments import display, named
from agents.tools import loop


def test_notes_are_shown_here_and_nowhere_else(tmp_path, capsys, caplog):
    config = named.load("debug")
    for quiet in (False, True):
        with display.Display(tmp_path, config, quiet):
            capsys.readouterr()
            logging.getLogger("agents.memories").info("a note")
        assert capsys.readouterr().out == ("" if quiet else "a note\n")
    assert caplog.records == []
    logging.getLogger("agents.memories").warning("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]


METRICS = {"score": 12.5, "episodes": 3, "kl": 0.01, "entropy": 1.5}


@pytest.mark.parametrize("width", [200, 80, 60, 20])
def test_lines_of_phases_fit_the_terminal(tmp_path, width):
    with display.Display(tmp_path, named.load("debug"), False) as view:
        view._bar = types.SimpleNamespace(
            console=console.Console(width=width), stop=lambda: None
        )
        line = view._line(loop.Report("evaluate", 1000, METRICS, 2.0, 500), 250.0)
    first = "evaluate         1,000        250 steps/s  return       12.5"
    rest = "  3 episodes", "  kl 0.01", "  entropy 1.5"
    assert line in ["".join([first, *rest[:n]]) for n in range(4)]
    assert len(line) <= max(width, len(first))
    assert (line == first + "".join(rest)) == (width >= 200)


def test_notes_above_the_live_line_stay_as_they_are(tmp_path):
    """Commands among them are copied."""
    view = display.Display(tmp_path, named.load("debug"), quiet=False)
    written = io.StringIO()
    view._bar = types.SimpleNamespace(
        console=console.Console(file=written, width=20, force_terminal=True)
    )
    text = "To go on, repeat the command with --logdir /runs/:key:/[red] --timestamp 1"
    view.note(text)
    assert written.getvalue() == f"{text}\n"


def test_metrics_of_the_user_come_first(tmp_path):
    with display.Display(tmp_path, named.load("debug"), False) as view:
        view.shown = ["success", "elsewhere"], ["kl"]
        view._bar = types.SimpleNamespace(
            console=console.Console(width=80), stop=lambda: None
        )
        metrics = {**METRICS, "success": 0.25}
        line = view._line(loop.Report("train", 1000, metrics, 2.0, 500), 250.0)
        assert line.endswith("  return       12.5  success 0.25")
        view._bar = None
        line = view._line(loop.Report("train", 1000, metrics, 2.0, 500), 250.0)
    assert line.endswith("  success 0.25  kl 0.01  3 episodes  entropy 1.5")


def test_other_outputs_get_totals_and_the_time_left(tmp_path, capsys, monkeypatch):
    config = named.load("debug", ["train.steps=4000"])
    now = [100.0]
    monkeypatch.setattr(display.time, "perf_counter", lambda: now[0])
    with display.Display(tmp_path, config, False) as view:
        capsys.readouterr()
        for step, seconds in ((0, 60), (1000, 10), (2000, 10), (3000, 10)):
            view.progress(loop.Report("train", step, {}, 10.0, step, False))
            now[0] += seconds
        view.progress(loop.Report("evaluate", 4000, {}, 10.0, 100, False))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "train                0 / 4,000  starting",
        "train            1,000 / 4,000        100 steps/s",  # A minute compiled.
        "train            2,000 / 4,000        200 steps/s  0:00:20 left",
        "train            3,000 / 4,000        300 steps/s  0:00:10 left",
        "evaluate         4,000 / 4,000         10 steps/s",
    ]
