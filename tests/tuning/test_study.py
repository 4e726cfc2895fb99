"""Studies: searches by trials."""

import contextlib
import csv
import json
import warnings

import pytest

from agents.experiments import named, runs
from agents.tools import config as config_
from agents.tools import errors
from agents.tuning import space, trainer, trials
from agents.tuning import study as study_

CONFIG = named.load("debug")


DIMENSIONS = {
    "algorithm.learning_rate": space.Range(1e-5, 1e-2, log=True),
    "algorithm.epochs": space.Range(1, 8, int=True),
    "algorithm.network": space.Choices(("small", {"layers": [8, 8]})),
}


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
    config = named.load("debug", [f"train.{k}={v}" for k, v in train.items()])
    space_ = space.Space(dimensions or DIMENSIONS)
    study_.require_optuna()
    study_.prepare(directory, config, space_)
    return study_.Study(directory, config, space_, fake)


def test_trials_are_reported_best_first(tmp_path, capsys):
    fake = Runs([0.0, 10.0], [0.0, 30.0], [0.0, 20.0])
    study = make_study(tmp_path / "study", fake)
    study.search(3)
    assert study.report().number == 1
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

    with (tmp_path / "study" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == ["30.0", "20.0", "10.0"]
    assert rows[0]["run"] == "trial-0001-debug"
    best = fake.chosen[1]
    assert float(rows[0]["algorithm.learning_rate"]) == best["algorithm.learning_rate"]

    expected = named.load("debug", space.assignments(best))
    assert named.load(str(path)) == expected
    assert named.load(str(path)) != CONFIG


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


class Rounded:
    """Stands in for training in phases of at least some steps, by the run's number."""

    def __init__(self, score, *sizes):
        self.score, self.sizes, self.steps = score, sizes, []

    @contextlib.contextmanager
    def __call__(self, directory, name, chosen):
        number = len(self.steps)
        self.steps.append(0)
        yield self._follow(number, self.sizes[number % len(self.sizes)])

    def _follow(self, number, size):
        for step in range(size, 4096 + size, size):
            self.steps[number] = step
            yield step, self.score(number, step)


def test_trials_are_compared_at_equal_steps(tmp_path):
    """Where phases are longer than planned, evaluations of equal numbers are not."""
    fake = Rounded(lambda _, step: float(step), 256, 1024)
    study = make_study(tmp_path / "study", fake, steps=4096, eval_every=256)
    study.search(12)
    assert {trial.state for trial in study.finished()} == {"complete"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (400, {512: 400, 768: 800, 1280: 1200, 1536: 1600, 2048: 2000}),
        (100, {256: 100, 512: 400, 768: 700, 1024: 900, 1280: 1200}),
    ],
)
def test_scores_belong_to_the_nearest_planned_step(tmp_path, size, expected):
    fake = Rounded(lambda _, step: float(step), size)
    study = make_study(tmp_path / "study", fake, steps=4096, eval_every=256)
    study.search(1)
    (trial,) = study._study.trials
    reports = trial.intermediate_values
    assert dict(sorted(reports.items())[:5]) == expected


def test_bad_trials_with_long_phases_are_pruned_after_a_third_of_the_steps(tmp_path):
    fake = Rounded(lambda number, _: float(number < 6), 512)
    study = make_study(tmp_path / "study", fake, steps=4096, eval_every=100)
    study.search(8)
    assert fake.steps == [*[4096] * 6, 1536, 1536]


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
    study.report()
    assert f"({error})" in capsys.readouterr().out


def test_without_a_complete_trial(tmp_path):
    fake = Runs([trainer.TrialError(trials.FAILED, "nothing works")])
    study = make_study(tmp_path / "study", fake)
    study.search(2)
    expected = "^no trial is complete, the last one: nothing works$"
    with pytest.raises(errors.Failure, match=expected):
        study.report()
    assert (tmp_path / "study" / "trials.csv").exists()
    assert not (tmp_path / "study" / "best.yaml").exists()


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
    assert second.started == ["trial-0012-debug", "trial-0013-debug"]
    assert [x.number for x in resumed.finished()] == [*range(14)]
    assert [int(x.run[6:10]) for x in resumed.finished()] == [*range(14)]
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
        config, space_ = named.load("debug", seed=seed), space.Space(DIMENSIONS)
        study_.Study(tmp_path / name, config, space_, fake).search(2)
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
    with pytest.raises(runs.RunError, match=r"is not a study: it has no space\.yaml"):
        make_study(tmp_path / "study", Runs([1.0]))


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


def test_several_evaluations_near_a_planned_one_count_once(tmp_path):
    """Optuna would warn of every further one."""
    study = make_study(
        tmp_path / "study", Rounded(lambda _, step: float(step), 100), eval_every=256
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.search(1)
    assert study.finished()[0].state == "complete"
