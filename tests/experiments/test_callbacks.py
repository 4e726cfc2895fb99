"""Functions of users that follow a run."""

import json

import numpy as np
import pytest

from agents.experiments import callbacks, display, named, runs, training
from agents.tools import config, errors

EVENTS = []


def note(event):
    EVENTS.append(event)


def successes(event):
    """Log of how many episodes were long enough."""
    return (
        {"success": event.metrics["length"] >= 20} if event.kind == "episode" else None
    )


def stop_at_the_second_evaluation(event):
    evaluations = [x for x in EVENTS if x.kind == "evaluation"]
    return event.kind != "evaluation" or len(evaluations) < 2


def failing(event):
    raise OSError("the disk of others")


def answer_of(value):
    return lambda event: value


def nothing():
    pass


def run(tmp_path, names, quiet=True):
    paths = ", ".join(f"{__name__}:{name}" for name in names)
    changes = ["train.steps=1024", f"train.callbacks=[{paths}]"]
    made = named.load("debug", [*changes, "environment.backend=serial"])
    training.prepare(tmp_path, made)
    with display.Display(tmp_path, made, quiet) as view:
        description = runs.describe(made)
        with training.Training(tmp_path, made, description, view) as trained:
            trained.run()
    return [
        json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]


def test_events_are_those_of_the_run(tmp_path, capsys):
    EVENTS.clear()
    rows = run(tmp_path, ["note", "successes"], quiet=False)
    trained = [row for row in rows if row["phase"] == "train"]
    evaluated = [row for row in rows if row["phase"] == "evaluate"]
    of = {
        kind: [x for x in EVENTS if x.kind == kind]
        for kind in ("episode", "update", "evaluation")
    }
    assert len(EVENTS) == sum(map(len, of.values()))
    assert len(of["episode"]) == sum(row["episodes"] for row in trained)
    means = [
        {key: row[key] for key in row if key not in ("phase", "step")}
        for row in evaluated
    ]
    assert [x.metrics for x in of["evaluation"]] == means
    assert [x.step for x in of["evaluation"]] == [row["step"] for row in evaluated]
    assert of["update"][-1].metrics["policy_loss"] == trained[-1]["policy_loss"]
    begin = 0
    for row in trained:  # Own metrics are means over the episodes of a phase.
        ended = of["episode"][begin : begin + row["episodes"]]
        long = [x.metrics["length"] >= 20 for x in ended]
        assert row["success"] == pytest.approx(np.mean(long))
        assert all(x.step <= row["step"] for x in ended)
        begin += row["episodes"]
    assert all("success" not in row for row in evaluated)
    lines = [x for x in capsys.readouterr().out.splitlines() if "success" in x]
    assert len(lines) == len(trained)


def test_false_stops_after_the_phase(tmp_path):
    EVENTS.clear()
    rows = run(tmp_path, ["note", "stop_at_the_second_evaluation"])
    assert [row["phase"] for row in rows] == ["train", "evaluate"] * 2
    lines = (tmp_path / "timing.jsonl").read_text().splitlines()
    stopped = [json.loads(line).get("stopped") for line in lines]
    assert stopped == [None, None, None, "by a callback"]


@pytest.mark.parametrize(
    "value", [None, True, 1, {}, {"own": 1}, {"own": np.float32(2)}]
)
def test_other_answers_do_not(monkeypatch, value):
    monkeypatch.setitem(globals(), "chosen", answer_of(value))
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    called.call("episode", 1, {})
    assert not called.stopping


@pytest.mark.parametrize("value", [False, 0, np.False_])
def test_what_is_false_stops(monkeypatch, value):
    monkeypatch.setitem(globals(), "chosen", answer_of(value))
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    called.call("episode", 1, {})
    assert called.stopping


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"own": "a"}, "must log finite numbers by name, got 'own': 'a'"),
        ({"own": float("nan")}, "must log finite numbers by name, got 'own': nan"),
        ({"own": np.zeros(2)}, "must log finite numbers by name, got 'own': array"),
        ({3: 1.0}, "must log finite numbers by name, got 3: 1.0"),
        ({"own": np.str_("3")}, "must log finite numbers by name, got 'own': "),
        ({"own": 10**400}, "must log finite numbers by name, got 'own': 1000"),
        (np.array([True, False]), "The truth value of an array with more than one"),
    ],
)
def test_other_answers_end_the_run_with_one_line(monkeypatch, values, message):
    monkeypatch.setitem(globals(), "chosen", answer_of(values))
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    with pytest.raises(
        errors.Failure, match=f"callback .*:chosen:? {message}"
    ) as error:
        called.call("episode", 1, {})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) <= errors.LONGEST


@pytest.mark.parametrize(
    "name", ["kl", "phase", "step", "seconds", "env_steps_per_second"]
)
def test_values_of_the_run_are_not_replaced(monkeypatch, name):
    monkeypatch.setitem(globals(), "chosen", answer_of({name: 1.0}))
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    called.call("episode", 1, {})
    with pytest.raises(
        errors.Failure, match=f"a callback logs '{name}', which is a value of the run"
    ):
        called.result({"score": 1.0, "kl": 0.1})


def test_means_are_forgotten_with_the_phase(monkeypatch):
    monkeypatch.setitem(globals(), "chosen", lambda event: {"own": event.step})
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    for step in (1, 2, 6):
        called.call("episode", step, {})
    assert called.result({}) == {"own": 3.0}
    assert called.result({}) == {}
    assert called.names == ["own"]


def test_failing_callback_is_named_as_a_failure_of_the_run(tmp_path):
    with pytest.raises(errors.Failure) as caught:
        run(tmp_path, ["failing"])
    first, *rest = str(caught.value).splitlines()
    assert first == f"callback {__name__}:failing: OSError: the disk of others"
    assert "in failing" in "\n".join(rest)


def test_mistakes_within_a_callback_are_failures_of_the_run_too(monkeypatch):
    monkeypatch.setitem(globals(), "chosen", lambda event: config.find("no path"))
    called = callbacks.Callbacks([f"{__name__}:chosen"])
    with pytest.raises(
        errors.Failure, match="callback .*:chosen: ConfigError: 'no path'"
    ):
        called.call("episode", 1, {})


def test_wrong_signature_is_refused_before_the_run():
    path = f"{__name__}:nothing"
    expected = f"callback {path} must take one argument, the event; too many"
    with pytest.raises(config.ConfigError, match=expected):
        callbacks.Callbacks([path])
    with pytest.raises(config.ConfigError, match="has no attribute 'missing'"):
        callbacks.Callbacks([f"{__name__}:missing"])


def false_at_first(event):
    return event.step > 1


def test_later_answers_do_not_take_back_that_a_run_stops():
    called = callbacks.Callbacks([f"{__name__}:false_at_first"])
    called.call("episode", 1, {})
    called.call("episode", 2, {})
    assert called.stopping
