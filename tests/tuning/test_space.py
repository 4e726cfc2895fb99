"""Search spaces."""

import pathlib
import re

import pytest

from agents.experiments import named
from agents.tools import config as config_
from agents.tools import config_files, sections
from agents.tuning import space

DIMENSIONS = {
    "algorithm.learning_rate": space.Range(1e-5, 1e-2, log=True),
    "algorithm.epochs": space.Range(1, 8, int=True),
    "algorithm.network": space.Choices(("small", {"layers": [8, 8]})),
}


VALUES = sections.to_dict(named.load("debug"))


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
    config_files.dump(space_.to_dict(), tmp_path / "copy.yaml")
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
        ("a: {low: 5, high: 2147483647, int: true, step: 5}", "a multiple of step"),
        ("a: {low: 5, high: 1.e+30, int: true, step: 5}", "must be at most 2**53"),
        ("a: []", "expected different choices, got []"),
        ("a: [1, 2, 1]", "expected different choices, got [1, 2, 1]"),
        ("a: [.nan, 1]", "choices are plain YAML values"),
        ("a: [!!set {x}]", "a tag that is not allowed"),
        ("name: [a, b]", "key 'name': this is nothing that can be varied"),
        ("1: [a, b]", "has the key 1, which is not text; quote it"),
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
        ("algorithm.epochs: {low: 1, high: 8}", "Add 'int: true' to its range for"),
        ("train.steps: [-1, -2]", "config key 'train.steps' must be positive"),
        ("environment.backend: [fast]", "'environment.backend' is 'fast'"),
        ("train.eval_episodes: [0]", "'train.eval_episodes' is 0, but evaluations"),
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


def test_page_shows_a_space(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs/commands.md").read_text()
    (block,) = re.findall(
        r"```yaml\n(algorithm\.learning_rate: .*?)```", text, re.DOTALL
    )
    space_ = space.load(write(tmp_path / "space.yaml", block))
    assert len(space_.dimensions) == 3
    space_.require(sections.to_dict(named.load("pendulum")))


def test_what_has_no_effect_is_named_unless_a_choice_gives_it_one():
    values = sections.to_dict(named.load("debug"))
    target = {"algorithm.kl_target": space.Range(1e-3, 1e-1, log=True)}
    with pytest.raises(config_.ConfigError) as caught:
        space.Space(target).require(values)
    assert "'algorithm.kl_target' is 0." in str(caught.value)
    assert "with objective clip; leave it out, or at 0.01." in str(caught.value)
    objective = {"algorithm.objective": space.Choices(("clip", "kl"))}
    space.Space({**target, **objective}).require(values)


def test_values_may_need_choices_of_several_keys():
    values = sections.to_dict(named.load("cartpole_a2c"))
    kinds = {
        "algorithm.type": space.Choices(("a2c", "ppo")),
        "algorithm.objective": space.Choices(("kl", "clip")),
    }
    clip = {"algorithm.clip": space.Range(0.1, 0.3)}
    space.Space({**kinds, **clip}).require(values)
    many = {"environment.kwargs.x": space.Choices(tuple(range(51)))}
    space.Space({**kinds, **many, **clip}).require(values)
    with pytest.raises(config_.ConfigError, match="unknown config key 'algorithm.clp'"):
        space.Space({**kinds, "algorithm.clp": space.Choices((1, 2))}).require(values)


def test_reasons_are_those_beside_the_right_choices():
    values = sections.to_dict(named.load("cartpole_dqn"))
    dimensions = {
        "algorithm.atoms": space.Choices((1, 51)),
        "algorithm.value_range": space.Choices(([0, 100], [0, 200])),
    }
    with pytest.raises(config_.ConfigError, match=r"huber_delta'.* with several atoms"):
        space.Space(dimensions).require(values)
    dimensions["algorithm.huber_delta"] = space.Choices((1.0,))
    space.Space(dimensions).require(values)


def test_assignments_hold_any_text():
    chosen = {"name": "\N{GRINNING FACE} \u00fc", "seed": 3}
    assert config_files.override({}, space.assignments(chosen)) == chosen


def test_the_lowest_value_may_be_refused():
    space.Space({"train.eval_episodes": space.Range(0, 5, int=True)}).require(VALUES)


def test_steps_of_fractions_are_nothing_for_integers():
    dimensions = {"algorithm.epochs": space.Range(1, 8, step=0.5)}
    with pytest.raises(config_.ConfigError, match="'algorithm.epochs' must be int"):
        space.Space(dimensions).require(VALUES)
