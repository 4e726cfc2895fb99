"""Reports of runs."""

import html
import json
import os
import pathlib
import re

import numpy as np
import pytest
from written_runs import make_run, write_rows

from agents.experiments import curves, pages, records, report
from agents.tools import config_files


def make(directory, name, returns, id="Left-v0", seed=0, rate=0.1, steps=100):
    """Run with reports of both phases after each 50 steps, and a config."""
    run = directory / name
    run.mkdir(parents=True)
    metrics, timing = [], []
    for number, value in enumerate(returns, start=1):
        step, seconds = 50 * number, 10.0 * number
        metrics += [
            {"phase": "train", "step": step, "score": value - 1, "loss": 1 / number},
            {"phase": "evaluate", "step": step, "score": value, "episodes": 20},
        ]
        timing += [
            {"phase": "train", "step": step, "seconds": seconds - 3}
            | {"phase_seconds": 6.0, "env_steps_per_second": 8.0},
            {"phase": "evaluate", "step": step, "seconds": seconds}
            | {"phase_seconds": 3.0, "env_steps_per_second": 9.0},
        ]
    write_rows(run / "metrics.jsonl", metrics)
    write_rows(run / "timing.jsonl", timing)
    config = {
        "name": name.partition("-")[2],
        "seed": seed,
        "environment": {"id": id, "num_agents": 4},
        "train": {"steps": steps},
        "algorithm": {"type": "ppo", "learning_rate": rate, "layers": [8, 8]},
    }
    config_files.dump(config, run / "config.yaml")
    defaults = {**config, "seed": 0, "algorithm": {"type": "ppo", "layers": [8, 8]}}
    defaults["algorithm"]["learning_rate"] = 0.1
    origin = {"command": f"agents train --config {config['name']} --seed {seed}"}
    origin |= {"date": "2030-01-02 03:04:05", "machine": "Abacus, 2 cores, 8 GB"}
    (run / "origin.json").write_text(json.dumps({**origin, "defaults": defaults}))
    (run / "versions.txt").write_text("python 3.99\nagents 0.1.0\n")
    (run / "checkpoints" / "step-000000000100").mkdir(parents=True)
    return run


def page(tmp_path, *runs, **options):
    """Text of the report of runs, without videos."""
    options = {"film": False, **options}
    found = report.write(
        [records.read(run) for run in runs], tmp_path / "out", **options
    )
    assert found == tmp_path / "out" / "index.html"
    return found.read_text()


def charts(text):
    """Charts of a page with their titles."""
    (data,) = re.findall(r'<script type="application/json" id="charts">(.*?)</', text)
    pattern = r"<figcaption>(.*?) <span>(.*?)</span></figcaption><div data-chart"
    titles = [f"{a} {b}".strip() for a, b in re.findall(pattern, text)]
    return list(zip(titles, json.loads(data), strict=True))


def tables(text):
    """Rows of all tables, as texts."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub("<.*?>", "", x)) for x in row] for row in cells]


def test_page_tells_everything_about_a_run(tmp_path):
    run = make(tmp_path, "1-left", [10.0, 30.0], rate=0.2)
    text = page(tmp_path, run, command="agents report 1-left --outdir out")
    assert [title for title, _ in charts(text)] == [
        "Evaluation: mean return over environment steps",
        "Evaluation: mean return over wall time [seconds]",
        "Training: mean return over environment steps",
        "Training: mean return over wall time [seconds]",
        "Training: loss",
        "Training: env steps per second",
        "Evaluation: env steps per second",
    ]
    found = dict(charts(text))
    line = {"label": "left", "color": 0, "faint": False, "mean": [10, 30]}
    steps = found["Evaluation: mean return over environment steps"]
    assert steps["lines"] == [{**line, "x": [50, 100]}]
    seconds = found["Evaluation: mean return over wall time [seconds]"]
    assert seconds["lines"] == [{**line, "x": [10, 20]}]
    assert found["Training: loss"]["lines"][0]["mean"] == [1, 0.5]
    rows = tables(text)
    assert ["left", "20 s", "12 s, 60%", "6 s, 30%", "2 s, 10%"] in rows
    assert ["algorithm.learning_rate", "0.2 (default 0.1)"] in rows
    assert ["algorithm.layers", "[8, 8]"] in rows
    assert ["environment.num_agents", "4"] in rows
    assert ["command", "agents train --config left --seed 0"] in rows
    assert ["machine", "Abacus, 2 cores, 8 GB"] in rows
    assert ["versions", "python 3.99, agents 0.1.0"] in rows
    assert ["state", "finished, 100 steps"] in rows
    assert 'href="../1-left/checkpoints/step-000000000100"' in text
    assert "agents report 1-left --outdir out" in text
    assert text.count('class="changed"') == 1
    assert "No video" in text


def test_seeds_share_a_curve_with_a_band(tmp_path):
    returns = [[10.0, 30.0], [20.0, 50.0], [60.0, 100.0]]
    runs = [make(tmp_path, f"{n}-left", x, seed=n) for n, x in enumerate(returns)]
    text = page(tmp_path, *runs)
    chart = dict(charts(text))["Evaluation: mean return over environment steps"]
    *faint, line = chart["lines"]
    assert [x["mean"] for x in faint] == returns
    assert all(x["faint"] and "lower" not in x for x in faint)
    assert line["mean"] == [30, 60]
    assert (line["lower"], line["upper"]) == ([15, 40], [40, 75])
    assert "3 seeds" in text
    row = next(x for x in tables(text) if x[:2] == ["Left-v0", "left"])
    assert row[2:5] == ["3", "100", "60"]
    middle = curves.interquartile_mean(np.array([30.0, 50.0, 100.0]))
    assert row[5] == f"{middle:.4g}"
    assert row[6] == "30 to 100"
    assert row[7:] == ["30, 50, 100", "20 s, 20 s, 20 s", "finished"]
    assert ["seed", "0, 1 (default 0), 2"] not in tables(text)
    (seeds,) = (x for x in tables(text) if x[0] == "seed")
    assert seeds[1].startswith("0, 1, 2")


def test_summary_by_hand():
    eight = np.arange(8.0)
    mean, middle, between = report.summary(eight)
    assert (mean, middle) == ("3.5", "3.5")
    lower, upper = map(float, between.split(" to "))
    assert 0 < lower < 2.6 < 4.4 < upper < 7
    assert report.summary(np.array([5.0])) == ("5", "5", "one seed")
    assert report.summary(np.array([])) == ("none yet", "", "")


def test_configs_are_compared(tmp_path):
    runs = [
        make(tmp_path, "1-left", [10.0, 30.0]),
        make(tmp_path, "2-left", [10.0, 40.0], rate=0.3),
    ]
    text = page(tmp_path, *runs)
    labels = ["left, learning_rate 0.1", "left, learning_rate 0.3"]
    for label in labels:
        assert f'data-label="{label}"' in text
    chart = dict(charts(text))["Training: loss"]
    assert [(x["label"], x["color"]) for x in chart["lines"]] == [
        (labels[0], 0),
        (labels[1], 1),
    ]
    assert ["key", *labels] in tables(text)
    assert ["algorithm.learning_rate", "0.1", "0.3 (default 0.1)"] in tables(text)
    assert '<td class="changed">algorithm.learning_rate</td>' in text
    assert '<td class="">environment.id</td>' in text
    assert "environments, whose scores" not in text


def test_defaults_of_other_forms(tmp_path):
    """A schedule in place of a number, and a value that is empty by default."""
    run = make(tmp_path, "1-left", [10.0])
    config = config_files.load_mapping(run / "config.yaml")
    config["algorithm"]["learning_rate"] = {"type": "linear", "over": 5}
    config["preprocessing"] = ["normalize"]
    config_files.dump(config, run / "config.yaml")
    rows = tables(page(tmp_path, run))
    assert ["algorithm.learning_rate.type", "linear (default 0.1)"] in rows
    assert ["algorithm.learning_rate.over", "5 (default 0.1)"] in rows
    assert ["preprocessing", '["normalize"] (default none)'] in rows
    (run / "origin.json").unlink()
    assert ["algorithm.learning_rate.type", "linear"] in tables(page(tmp_path, run))


def test_environments_have_charts_of_their_own(tmp_path):
    runs = [
        make(tmp_path, "1-left", [10.0, 30.0]),
        make(tmp_path, "2-right", [500.0, 700.0], id="Right-v0"),
    ]
    text = page(tmp_path, *runs)
    assert "These runs are of 2 environments" in text
    assert "<h3>Left-v0</h3>" in text
    assert "<h3>Right-v0</h3>" in text
    found = charts(text)
    assert len(found) == 2 * 7
    for _, chart in found:
        assert len({line["label"] for line in chart["lines"]}) == 1


@pytest.mark.parametrize("end", [1, 20, 60])
def test_run_in_progress(tmp_path, end):
    run = make(tmp_path, "1-left", [10.0, 30.0, 40.0], steps=600)
    for name in ("metrics.jsonl", "timing.jsonl"):
        *others, last = (run / name).read_text().splitlines(keepends=True)
        assert end < len(last) - 2
        (run / name).write_text("".join([*others, last[:end]]))
    text = page(tmp_path, run)
    chart = dict(charts(text))["Evaluation: mean return over environment steps"]
    assert chart["lines"][0]["x"] == [50, 100]
    assert "in progress, 25%" in text
    (run / "metrics.jsonl").write_text("")
    assert "has no reports yet" in page(tmp_path, run)


def test_seeds_that_have_just_begun_hide_nothing(tmp_path):
    runs = [
        make(tmp_path, "1-left", [10.0, 30.0, 50.0]),
        make(tmp_path, "2-left", [20.0], seed=1),
    ]
    chart = charts(page(tmp_path, *runs))[0][1]
    assert [x["x"] for x in chart["lines"]] == [[50, 100, 150], [50], [50]]
    lines = (runs[1] / "timing.jsonl").read_text().splitlines()
    for row in (apart := json.loads(f"[{','.join(lines)}]")):
        row["seconds"] += 100
    write_rows(runs[1] / "timing.jsonl", apart)
    title, chart = charts(page(tmp_path, *runs))[1]
    assert title == "Evaluation: mean return over wall time [seconds]"
    assert [(x["x"], x["faint"]) for x in chart["lines"]] == [
        ([10, 20, 30], False),
        ([110], False),
    ]
    later = make(tmp_path, "3-left", [], seed=2)
    assert charts(page(tmp_path, runs[0], later))[0][1]["lines"][0]["x"]


def only(run, phase):
    """Leave reports of one phase."""
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    write_rows(run / "metrics.jsonl", [x for x in rows if x["phase"] == phase])


def test_scores_of_training_do_not_mix_with_evaluations(tmp_path):
    runs = [
        make(tmp_path, f"{n}-left", [x], seed=n, steps=50)
        for n, x in ((1, 500), (2, 21))
    ]
    only(runs[1], "train")
    begun = make(tmp_path, "3-left", [], seed=3)
    (begun / "metrics.jsonl").unlink()
    text = page(tmp_path, *runs, begun)
    (row,) = (x for x in tables(text) if x[:2] == ["Left-v0", "left"])
    assert row[2:8] == ["1 of 3 seeds", "0 to 50", "500", "500", "one seed", "500"]
    assert row[-1] == "finished; in progress, 0%"
    titles = [title for title, _ in charts(text)]
    assert titles[:2] == [
        f"Evaluation: mean return over {x}, 1 of 3 seeds of left"
        for x in ("environment steps", "wall time [seconds]")
    ]
    assert "Training: loss 2 of 3 seeds of left" in titles
    found = records.Entry(0, "left", "Left-v0", [*map(records.read, runs)])
    assert found.scores() == [500, None]
    assert found.best().path == runs[0]
    only(runs[0], "train")
    found = records.Entry(0, "left", "Left-v0", [*map(records.read, runs)])
    assert found.scores() == [499, 20]


@pytest.mark.parametrize(
    ("returns", "phase", "state"),
    [
        ([70, 110, 80], "evaluate", "solved"),
        ([70, 90, 80], "evaluate", "in progress, 25%"),
        ([200, 200, 200], "train", "in progress, 25%"),
    ],
)
def test_runs_are_solved_by_any_evaluation_alone(tmp_path, returns, phase, state):
    run = make(tmp_path, "1-left", returns, steps=600)
    only(run, phase)
    values = config_files.load(run / "config.yaml")
    values["train"]["stop_at"] = 100
    config_files.dump(values, run / "config.yaml")
    assert records.read(run).state == state


@pytest.mark.parametrize(
    ("phase", "eval_episodes", "state"),
    [
        ("train", 20, "in progress, 100%"),
        ("evaluate", 20, "finished"),
        ("train", 0, "finished"),
    ],
)
def test_runs_finish_with_their_last_phase(tmp_path, phase, eval_episodes, state):
    run = make(tmp_path, "1-left", [70], steps=50)
    only(run, phase)
    values = config_files.load(run / "config.yaml")
    values["train"]["eval_episodes"] = eval_episodes
    config_files.dump(values, run / "config.yaml")
    assert records.read(run).state == state


def test_old_runs_tell_less(tmp_path):
    run = make_run(tmp_path, "1-a", {0: 1.0, 100: 2.0})
    text = page(tmp_path, run)
    assert ["command", "not recorded"] in tables(text)
    assert len(charts(text)) == 2  # Score and length, without times.
    assert "Wall time, mean over seeds" not in text


def test_directories_without_metrics_are_refused(tmp_path):
    with pytest.raises(records.PlotError, match=r"it has no metrics\.jsonl"):
        records.read(tmp_path)
    run = make(tmp_path, "1-left", [1.0])
    (run / "origin.json").write_text("[")
    with pytest.raises(records.PlotError, match="expected a JSON object"):
        records.read(run)


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = page(tmp_path, make(tmp_path, "1-left", [10.0, 30.0]))
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?\s*(?:https?:)?//", text)
    assert not re.findall(r"@import|url\(", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy
    assert "http" not in policy


def test_names_of_files_may_be_no_text(tmp_path):
    run = make(tmp_path, "1-mine", [1, 2])
    pathlib.Path(os.fsdecode(os.fsencode(run) + b"/bad\xff.txt")).touch()
    text = page(tmp_path, run)
    assert "bad%FF.txt" in text


def test_texts_are_no_code(tmp_path):
    evil = "</script><script>alert(1)</script>"
    run = make(tmp_path, "1-left", [10.0, 30.0], id=evil)
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    write_rows(run / "metrics.jsonl", [{**row, f"<b>{evil}": 1.0} for row in rows])
    text = page(tmp_path, run, command=evil)
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<b>" not in text
    assert text.count("</script>") == 2


def test_many_long_runs_stay_below_three_megabytes(tmp_path):
    runs = []
    noise = np.random.default_rng(0).normal(size=300)
    for number in range(20):
        run = make(tmp_path, f"{number}-config{number}", noise)
        rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
        extra = {f"metric_{n}": 0.123456789 * n for n in range(20)}
        quartiles = {"lower_quartile": -1 / 3, "upper_quartile": 2 / 3}
        write_rows(run / "metrics.jsonl", [{**x, **extra, **quartiles} for x in rows])
        runs.append(run)
    text = page(tmp_path, *runs)
    assert len(text.encode()) < 3_000_000
    line = charts(text)[0][1]["lines"][0]
    assert pages.LEAST_POINTS < len(line["x"]) < 300
    assert line["x"][-1] == 15_000


def test_thinned_curves_are_means_of_neighbors():
    np.testing.assert_array_equal(pages._thin(np.arange(3.0), 3), [0, 1, 2])
    found = pages._thin(np.array([1.0, 3.0, 5.0, 7.0, 9.0]), 3)
    np.testing.assert_array_equal(found, [2, 6, 9])


def test_a_run_that_a_callback_has_stopped_is_not_in_progress(tmp_path):
    run = make(tmp_path, "1-left", [10.0, 30.0], steps=400)
    assert "in progress, 25%" in page(tmp_path, run)
    rows = [json.loads(x) for x in (run / "timing.jsonl").read_text().splitlines()]
    rows[-1]["stopped"] = "by a callback"
    write_rows(run / "timing.jsonl", rows)
    text = page(tmp_path, run)
    assert "in progress" not in text
    assert ["state", "stopped by a callback, 100 steps"] in tables(text)
