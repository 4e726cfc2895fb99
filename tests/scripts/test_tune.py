import contextlib
import csv
import json
import pathlib
import re
import signal
import subprocess
import sys

import psutil
import pytest
from matplotlib import image

from agents.scripts import configs, plot, runs, space, trainer, trials, tune
from agents.tools import config as config_
from agents.tools import files

CONFIG = configs.load("debug")
VALUES = config_.to_dict(CONFIG)
DIMENSIONS = {
    "algorithm.learning_rate": space.Range(1e-5, 1e-2, log=True),
    "algorithm.epochs": space.Range(1, 8, int=True),
    "algorithm.network": space.Choices(("small", {"layers": [8, 8]})),
}


def write(path, text):
    path.write_text(text)
    return path


class Recorder:
    """Stands in for Optuna's trial and notes what is asked for."""

    def __init__(self):
        self.asked = []

    def suggest_float(self, key, low, high, *, step, log):
        self.asked.append((key, float, low, high, step, log))
        return low

    def suggest_int(self, key, low, high, *, step, log):
        self.asked.append((key, int, low, high, step, log))
        return high

    def suggest_categorical(self, key, choices):
        self.asked.append((key, tuple(choices)))
        return choices[-1]


class Runs:
    """Stands in for training: scores by the number of the run."""

    def __init__(self, *scores, interrupt=None):
        self.scores = scores
        self.interrupt = interrupt
        self.started, self.chosen, self.closed = [], [], []

    @contextlib.contextmanager
    def __call__(self, directory, name, chosen):
        self.started.append(name)
        self.chosen.append(chosen)
        try:
            yield self._follow(len(self.started) - 1)
        finally:
            self.closed.append(name)

    def _follow(self, number):
        for index, score in enumerate(self.scores[number % len(self.scores)]):
            if isinstance(score, Exception):
                raise score
            if number == self.interrupt and index == 1:
                raise KeyboardInterrupt
            yield 256 * (index + 1) + 4, score


def make_study(directory, fake, dimensions=None, **train):
    directory.mkdir(exist_ok=True)
    config = configs.load("debug", [f"train.{k}={v}" for k, v in train.items()])
    space_ = space.Space(dimensions or DIMENSIONS)
    tune.require_optuna()
    tune.prepare(directory, config, space_)
    return tune.Study(directory, config, space_, fake)


# The space file.


def test_every_kind_of_dimension(tmp_path):
    text = """
        algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}
        algorithm.discount: {low: 0.5, high: 1, step: 0.125}
        algorithm.epochs: {low: 1, high: 9, int: true, step: 4}
        algorithm.minibatch_size: {low: 8, high: 64, int: true, log: true}
        algorithm.network: [32, small, null, {layers: [32, 32]}]
    """
    space_ = space.load(write(tmp_path / "space.yaml", text))
    recorder = Recorder()
    assert space_.suggest(recorder) == {
        "algorithm.learning_rate": 1e-5,
        "algorithm.discount": 0.5,
        "algorithm.epochs": 9,
        "algorithm.minibatch_size": 64,
        "algorithm.network": {"layers": [32, 32]},
    }
    assert recorder.asked == [
        ("algorithm.learning_rate", float, 1e-5, 1e-2, None, True),
        ("algorithm.discount", float, 0.5, 1.0, 0.125, False),
        ("algorithm.epochs", int, 1, 9, 4, False),
        ("algorithm.minibatch_size", int, 8, 64, 1, True),
        ("algorithm.network", ("32", '"small"', "null", '{"layers": [32, 32]}')),
    ]
    config_.dump(space_.to_dict(), tmp_path / "copy.yaml")
    assert space.load(tmp_path / "copy.yaml").dimensions == space_.dimensions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must map config keys to ranges"),
        ("[1, 2]", "must map config keys to ranges"),
        ("a: {low: 1", "is not valid YAML"),
        ("a: 3", "expected a list of choices or a mapping with low and high, got 3"),
        ("a: {low: 1, hihg: 2}", "unknown 'hihg' of a range; did you mean 'high'?"),
        ("a: {low: 1}", "the range has no 'high'"),
        ("a: {low: 2, high: 1}", "low must be below high, got 2 and 1"),
        ("a: {low: 1, high: .inf}", "'a.high' must be a finite float, got inf"),
        ("a: {low: one, high: 2}", "'a.low' must be float, got 'one'"),
        ("a: {low: 0, high: 1, log: true}", "log needs a positive low, got 0"),
        ("a: {low: 1, high: 2, log: 3}", "'a.log' must be bool, got 3"),
        ("a: {low: 1, high: 3, log: true, step: 1}", "log and step exclude"),
        ("a: {low: 1, high: 2.5, int: true}", "low, high and step must be integers"),
        ("a: {low: 1, high: 8, step: -1}", "step must be positive, got -1"),
        ("a: {low: 1, high: 8, step: 2}", "high must be low plus a multiple of step"),
        ("a: []", "expected different choices, got []"),
        ("a: [1, 2, 1]", "expected different choices, got [1, 2, 1]"),
        ("a: [.nan, 1]", "choices are plain YAML values"),
        ("a: [!!set {x}]", "a tag that is not allowed"),
        ("name: [a, b]", "key 'name': this is nothing that can be varied"),
        ("1: [a, b]", "has the key 1, which is no text; quote it"),
    ],
)
def test_mistakes_in_the_file(tmp_path, text, message):
    with pytest.raises(config_.ConfigError) as error:
        space.load(write(tmp_path / "space.yaml", text))
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "space.yaml"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "algorithm.learning_rat: {low: 1, high: 2}",
            "unknown config key 'algorithm.learning_rat'; did you mean 'learning_rate'",
        ),
        ("algoritm.epochs: [1]", "'algoritm.epochs'; did you mean 'algorithm'?"),
        ("train.steps.x: [1]", "unknown config key 'train.steps.x'; 'steps' is 512."),
        ("algorithm.epochs: {low: 1, high: 8}", "'algorithm.epochs' must be int, got"),
        ("train.steps: [-1, -2]", "config key 'train.steps' must be positive"),
        ("environment.backend: [fast]", "'environment.backend' is 'fast'"),
    ],
)
def test_keys_that_the_config_does_not_take(tmp_path, text, message):
    space_ = space.load(write(tmp_path / "space.yaml", text))
    with pytest.raises(config_.ConfigError) as error:
        space_.require(VALUES)
    assert message in str(error.value)


def test_one_good_choice_is_enough(tmp_path):
    text = "train.steps: [-1, 512]\nenvironment.kwargs.anything: [1]"
    space.load(write(tmp_path / "space.yaml", text)).require(VALUES)
    space.Space(DIMENSIONS).require(VALUES)


def test_readme_shows_a_space(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    (block,) = re.findall(
        r"```yaml\n(algorithm\.learning_rate: .*?)```", text, re.DOTALL
    )
    space_ = space.load(write(tmp_path / "space.yaml", block))
    assert len(space_.dimensions) == 3
    space_.require(config_.to_dict(configs.load("pendulum")))


# Trials.


def test_value_is_the_mean_of_the_last_third():
    assert trials.final_score([7.0]) == 7.0
    assert trials.final_score([1.0, 2.0, 6.0]) == 6.0
    assert trials.final_score([1.0, 2.0, 4.0, 6.0]) == 5.0


def test_trials_are_reported_best_first(tmp_path, capsys):
    fake = Runs([0.0, 10.0], [0.0, 30.0], [0.0, 20.0])
    study = make_study(tmp_path / "study", fake)
    study.search(3)
    assert study.report() == 0
    output = capsys.readouterr().out.split("\n")
    assert [line.split()[:3] for line in output[:3]] == [
        ["trial", str(number), "complete"] for number in range(3)
    ]
    assert "best 30.0 (trial 1)" in output[2]
    assert [line.split()[:4] for line in output[4:7]] == [
        [number, value, "516", "complete"]
        for number, value in (("1", "30.0"), ("2", "20.0"), ("0", "10.0"))
    ]
    path = tmp_path / "study" / "best.yaml"
    assert output[-2].endswith(f"agents train --config {path}")

    with (tmp_path / "study" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == ["30.0", "20.0", "10.0"]
    assert rows[0]["run"] == "trial-0001-debug"
    best = fake.chosen[1]
    assert float(rows[0]["algorithm.learning_rate"]) == best["algorithm.learning_rate"]

    expected = configs.load("debug", space.assignments(best))
    assert configs.load(str(path)) == expected
    assert configs.load(str(path)) != CONFIG


def test_figure_has_a_panel_per_parameter(tmp_path):
    states = [trials.COMPLETE, trials.PRUNED, trials.COMPLETE, trials.REFUSED]
    values = [1.0, 0.5, 3.0, None]
    chosen = [
        {"lr": 10.0**-i, "epochs": i, "network": choice, "discount": 0.9}
        for i, choice in enumerate(["small", {"layers": [8]}] * 2)
    ]
    found = [
        trials.Trial(i, "", states[i], values[i], 512, 1.0, "", chosen[i])
        for i in range(4)
    ]
    space_ = space.Space(
        {
            "lr": space.Range(1e-4, 1, log=True),
            "epochs": space.Range(0, 4, int=True),
            "network": space.Choices(("small", {"layers": [8]})),
            "discount": space.Range(0.5, 1),
        }
    )
    trials.draw(found, space_, tmp_path / "study.png")
    pixels = image.imread(tmp_path / "study.png")  # [height, width, 4]
    assert pixels.shape[0] > 800
    assert pixels.shape[1] > 1500
    assert not trials.draw(found[3:], space_, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_short_names_can_be_told_apart():
    chosen = {"algorithm.epochs": 3, "a.rate": 0.0012345, "b.rate": [1]}
    assert trials.describe(chosen) == "epochs=3 a.rate=0.001234 b.rate=[1]"


def test_bad_trials_are_pruned(tmp_path):
    good, bad = [5.0, 50.0, 60.0, 70.0], [4.0, 49.0, 90.0, 90.0]
    fake = Runs(*[good] * 5, bad, good)
    # The first third of 1024 steps is for warming up, so 4 < 5 may pass.
    study = make_study(tmp_path / "study", fake, steps=1024)
    study.search(7)
    states = [trial.state for trial in study.finished()]
    assert states == [*["complete"] * 5, "pruned", "complete"]
    pruned = study.finished()[5]
    assert pruned.value == 49.0
    assert pruned.steps == 516
    assert len(fake.closed) == 7


def test_order_of_trials():
    order = [("complete", 2.0), ("complete", 1.0), ("pruned", 9.0), ("failed", None)]
    found = [
        trials.Trial(number, "", state, value, 512, 1.0, "", {})
        for number, (state, value) in enumerate(reversed(order))
    ]
    ranked = trials.ranked(found)
    assert [(trial.state, trial.value) for trial in ranked] == order
    assert trials.best(found) is ranked[0]
    assert trials.best(found[:2]) is None


def test_one_of_few_trials_is_not_pruned(tmp_path):
    study = make_study(tmp_path / "study", Runs([9.0] * 4, [1.0] * 4), steps=1024)
    study.search(4)
    assert {trial.state for trial in study.finished()} == {"complete"}


def test_failures_do_not_end_the_study(tmp_path, capsys):
    error = trainer.TrialError(trials.FAILED, "stopped at step 4: loss is NaN")
    dimensions = {"train.steps": space.Choices((-1, 512))}
    fake = Runs([1.0, error], [3.0, 3.0], [])
    study = make_study(tmp_path / "study", fake, dimensions)
    study.search(8)
    finished = study.finished()
    states = {trial.state for trial in finished}
    assert states == {"complete", "failed", "refused"}
    for trial in finished:
        if trial.chosen["train.steps"] == -1:
            assert trial.state == trials.REFUSED
            assert trial.reason == "config key 'train.steps' must be positive, got -1."
    refused = sum(trial.state == trials.REFUSED for trial in finished)
    assert len(fake.started) == 8 - refused  # They were never started.
    reasons = {trial.reason for trial in finished if trial.state == trials.FAILED}
    assert reasons == {str(error), "no evaluation has a score"}
    assert study.report() == 0
    assert f"({error})" in capsys.readouterr().out


def test_without_a_complete_trial(tmp_path, capsys):
    fake = Runs([trainer.TrialError(trials.FAILED, "nothing works")])
    study = make_study(tmp_path / "study", fake)
    study.search(2)
    assert study.report() == 1
    error = capsys.readouterr().err
    assert error == "error: no trial is complete, the last one: nothing works\n"
    assert (tmp_path / "study" / "trials.csv").exists()
    assert not (tmp_path / "study" / "best.yaml").exists()


# Interruption.


def test_interrupted_study_goes_on_as_if_it_had_not_been(tmp_path):
    scores = [[float(i), float(i * i % 7)] for i in range(14)]
    whole = Runs(*scores)
    study = make_study(tmp_path / "whole", whole)
    study.search(14)

    first = Runs(*scores, interrupt=12)  # TPE begins at the eleventh trial.
    broken = make_study(tmp_path / "broken", first)
    with pytest.raises(KeyboardInterrupt):
        broken.search(14)
    assert len(broken.finished()) == 12
    assert first.closed == first.started

    second = Runs(*scores[12:])
    resumed = make_study(tmp_path / "broken", second)
    resumed.search(14)
    assert second.started == ["trial-0012-debug", "trial-0014-debug"]
    assert first.chosen[:12] + second.chosen == whole.chosen
    assert len({json.dumps(chosen) for chosen in whole.chosen}) == 14
    values = [[trial.value for trial in x.finished()] for x in (resumed, study)]
    assert values[0] == values[1]

    third = Runs([0.0])
    make_study(tmp_path / "broken", third).search(14)
    assert third.started == []


def test_seed_decides_what_is_tried(tmp_path):
    tried = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fake = Runs([1.0])
        (tmp_path / name).mkdir()
        config, space_ = configs.load("debug", seed=seed), space.Space(DIMENSIONS)
        tune.Study(tmp_path / name, config, space_, fake).search(2)
        tried.append(fake.chosen)
    assert tried[0] == tried[1] != tried[2]
    assert tried[0][0] != tried[0][1]


def test_another_config_or_space_is_refused(tmp_path):
    make_study(tmp_path / "study", Runs([1.0]))
    with pytest.raises(runs.RunError) as error:
        make_study(tmp_path / "study", Runs([1.0]), steps=256)
    assert "another config.yaml: train.steps: 512 -> 256; use" in str(error.value)
    dimensions = {**DIMENSIONS, "algorithm.epochs": space.Range(1, 9, int=True)}
    with pytest.raises(runs.RunError) as error:
        make_study(tmp_path / "study", Runs([1.0]), dimensions)
    assert "another space.yaml: algorithm.epochs.high: 8 -> 9" in str(error.value)
    (tmp_path / "study" / "space.yaml").unlink()
    with pytest.raises(runs.RunError, match=r"is no study, it has no space\.yaml"):
        make_study(tmp_path / "study", Runs([1.0]))


# The command.


@pytest.fixture
def arguments(tmp_path):
    """Command line of a study of the learning rate."""
    text = "algorithm.learning_rate: {low: 1e-4, high: 1e-2, log: true}"
    path = write(tmp_path / "space.yaml", text)
    directories = ("--space", path, "--logdir", tmp_path / "logdir")
    return ("--config", "debug", *directories, "--name", "study")


def test_without_optuna(call, arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, output, errors = call(tune, *arguments, "--trials", 1)
    assert (code, output) == (2, "")
    assert "pip install 'agents[tune]'" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--set", "train.eval_episodes=0"], "'train.eval_episodes' is 0"),
        (["--set", "algorithm.epoch=1"], "did you mean 'epochs'?"),
        (["--space", "missing.yaml"], "cannot read config file missing.yaml"),
        (["--set", "environment.id=Missing-v1"], "Missing-v1"),
    ],
)
def test_mistakes_are_found_before_a_trial(call, arguments, tmp_path, extra, message):
    code, output, errors = call(tune, *arguments, "--trials", 1, *extra)
    assert (code, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "logdir").exists()


def test_a_study_is_tuned_by_one_process(call, arguments, tmp_path):
    with runs.alone(tmp_path / "logdir" / "study", "--name"):
        code, _, errors = call(tune, *arguments, "--trials", 1)
    assert code == 2
    assert "another process works on" in errors
    assert errors.endswith("wait for it, or use another --name.\n")


@pytest.mark.parametrize("name", ["../x", "..", "a/b"])
def test_a_study_stays_in_the_log_directory(call, arguments, tmp_path, name):
    code, output, errors = call(tune, *arguments[:-1], name, "--trials", 1)
    assert (code, output) == (2, "")
    assert f"--name is {name!r}, but directories are named by it" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "logdir").exists()


@pytest.mark.parametrize("name", ["config.yaml", "space.yaml"])
@pytest.mark.parametrize("content", ["", "[1]", "a: ["])
def test_damaged_files_of_a_study_are_refused_in_one_line(tmp_path, name, content):
    make_study(tmp_path / "study", Runs([1.0]))
    (tmp_path / "study" / name).write_text(content)
    with pytest.raises(config_.ConfigError) as error:
        make_study(tmp_path / "study", Runs([1.0]))
    assert str(error.value).startswith(str(tmp_path / "study" / name))
    assert "\n" not in str(error.value)


def test_half_written_line_of_a_journal_does_not_spoil_the_study(tmp_path):
    study = make_study(tmp_path / "study", Runs([1.0], [2.0]))
    study.search(1)
    journal = tmp_path / "study" / "study.journal"
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(whole.splitlines()[-1][:20])  # What a killed process leaves.
    study = make_study(tmp_path / "study", Runs([2.0]))
    assert journal.read_bytes().startswith(whole + b"{")  # It was opened again.
    study.search(2)
    values = [x.value for x in make_study(tmp_path / "study", Runs()).finished()]
    assert values == [1.0, 2.0]


@pytest.mark.parametrize("line", ["garbage", "{}", "[1]", '{"op_code": 0}'])
def test_damaged_journal_is_refused_in_one_line(tmp_path, line):
    make_study(tmp_path / "study", Runs([1.0])).search(1)
    journal = tmp_path / "study" / "study.journal"
    first, *others = journal.read_text().splitlines()
    journal.write_text("\n".join([line, first, *others, ""]))
    with pytest.raises(runs.RunError, match=r"study\.journal is damaged") as error:
        make_study(tmp_path / "study", Runs([1.0]))
    assert "\n" not in str(error.value)


def test_full_disk_is_no_result_of_a_trial(tmp_path, full_disk):
    tune.prepare(tmp_path, CONFIG, space.Space(DIMENSIONS))
    chosen = {"algorithm.jit": False, "environment.backend": "serial"}
    with (
        full_disk(100_000),
        pytest.raises(files.WriteError) as error,
        trainer.train(tmp_path, "trial-0000-debug", chosen) as scores,
    ):
        list(scores)
    assert str(error.value).startswith("trial-0000-debug: stopped at step 256: cannot ")
    assert "\n" not in str(error.value)


def test_run_that_cannot_be_made(tmp_path):
    config = configs.load("debug", ["environment.id=missing_module:make"])
    tune.prepare(tmp_path, config, space.Space(DIMENSIONS))
    arguments = (tmp_path, "trial-0000-debug", {"algorithm.epochs": 1})
    expected = pytest.raises(trainer.TrialError, match=r"exit code 2: .*missing_module")
    with trainer.train(*arguments) as scores, expected as error:
        list(scores)
    assert error.value.state == trials.REFUSED


def test_interrupt_between_two_scores_says_what_happens(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(trainer, "CHILD", "import time; time.sleep(1000)")
    with pytest.raises(KeyboardInterrupt), trainer.train(tmp_path, "trial-0", {}):
        raise KeyboardInterrupt
    assert "Stopping when the phase of the trial is over" in capsys.readouterr().out


def test_stubborn_run_is_killed(monkeypatch):
    program = """
import signal, time
signal.signal(signal.SIGINT, lambda *_: print("no", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1)
"""
    monkeypatch.setattr(trainer, "PATIENCE", (0.2, 0.2))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        trainer._stop(process)
        assert process.stdout.read() == "no\nno\n"
    assert process.returncode == -signal.SIGKILL


def test_study_of_real_runs_is_interrupted_and_goes_on(
    start, arguments, tmp_path, gate
):
    directory = tmp_path / "logdir" / "study"
    first = directory / "trial-0000-debug"
    arguments = (*arguments, "--trials", 1, *gate.settings("CartPole-v1"))
    arguments = (
        *arguments,
        "--set",
        "train.steps=1536",
        "--set",
        "algorithm.jit=false",
    )

    def scores():
        if not (first / "metrics.jsonl").exists():
            return {}
        return plot.phase_scores(plot.read_rows(first / "metrics.jsonl"), "evaluate")

    gate.close(first, reports=4)
    script = start("tune", *arguments)
    script.wait_for(scores)
    script.signal(signal.SIGINT)
    line = script.process.stdout.readline()
    assert "Stopping when the phase of the trial is over" in line
    gate.open()
    code, output, errors = script.wait()
    assert (code, errors) == (130, "")
    assert "Stopped with 0 of 1 trials finished. To go on, repeat" in output
    saved = scores()
    timing = (first / "timing.jsonl").read_text()
    assert 0 < len(saved) < 4

    gate.close(first, reports=8)
    script = start("tune", *arguments)
    script.wait_for(lambda: len(scores()) > len(saved))
    children = script.workers()
    assert children
    script.process.kill()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert gone
    assert not alive
    gate.open()

    code, output, errors = start("tune", *arguments).wait()
    assert (code, errors) == (0, "")
    assert len(scores()) == 6
    assert saved.items() <= scores().items()
    assert (first / "timing.jsonl").read_text().startswith(timing)  # It went on.
    assert list(directory.glob("trial-*")) == [first]
    names = {path.name for path in directory.iterdir()}
    assert {"config.yaml", "space.yaml", "best.yaml", "study.png"} <= names
    with (directory / "trials.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["run"] == first.name
    assert float(row["value"]) == trials.final_score(list(scores().values()))
    assert int(row["steps"]) == 1536
    trained = config_.load(first / "config.yaml")
    assert trained == config_.load(directory / "best.yaml")


@pytest.mark.parametrize(
    ("name", "value"),
    [("chosen", {}), ("chosen", 5), ("state", "odd"), ("steps", "x"), ("run", None)],
)
def test_damaged_trials_are_refused(tmp_path, name, value):
    study = make_study(tmp_path / "study", Runs([10.0, 11.0]))
    study.search(1)
    journal = tmp_path / "study" / "study.journal"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    changed = [x["user_attr"] for x in lines if name in x.get("user_attr", {})]
    for attributes in changed:
        attributes[name] = value
    assert changed
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(runs.RunError, match="^trial 0 of .* is damaged; use another"):
        make_study(tmp_path / "study", Runs([10.0, 11.0])).search(2)
