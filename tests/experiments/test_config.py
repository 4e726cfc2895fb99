"""Configs of runs."""

import dataclasses

import keras
import pytest
import tensorflow as tf

from agents.environments import Environment
from agents.experiments import config as experiment
from agents.experiments import named, runs
from agents.tools import algorithm, config_files, errors, sections
from agents.tools import config as config_


def test_part_of_a_config_is_completed_by_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("environment: {id: CartPole-v1}\nalgorithm: {discount: 0.5}\n")
    config = named.load(str(path), ["train.steps=5"])
    assert config.name == "mine"
    assert config.train.steps == 5
    assert config.environment == Environment("CartPole-v1")
    cls = experiment.algorithm_config("ppo")
    assert config.algorithm == cls(discount=0.5)


def test_algorithms_may_be_named_by_their_path(tmp_path):
    path = tmp_path / "mine.yaml"
    algorithm = "algorithm: {type: 'agents.algorithms.dqn:DQN', batch_size: 7}"
    path.write_text(f"environment: {{id: CartPole-v1}}\n{algorithm}\n")
    config = named.load(str(path))
    assert config.algorithm.batch_size == 7
    agent = config.create_algorithm(runs.describe(config), 2)
    assert type(agent).__name__ == "DQN"


@dataclasses.dataclass
class Config:
    """Of an algorithm, without its type."""

    rate: float = 0.1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing_here:Mine", "cannot import 'nothing_here:Config': No module named"),
        ("agents.returns:Mine", "cannot import 'agents.returns:Config': module"),
        (
            f"{__name__}:Mine",
            f"'{__name__}:Config' must be a dataclass with a field type: str = "
            f"'{__name__}:Mine'.$",
        ),
    ],
)
def test_wrong_paths_of_algorithms(kind, message):
    with pytest.raises(config_.ConfigError, match=message):
        named.load("cartpole", [f"algorithm.type={kind}"])


class Forgetful(algorithm.Algorithm):
    """Learns a layer that no checkpoint holds."""

    def __init__(self, *_):
        super().__init__()
        self.lengths = tf.Variable(tf.zeros([7]))  # Of running episodes.
        self.layer = keras.layers.Dense(1, name="last")
        self.layer.build([None, 3])


def test_algorithms_that_checkpoints_would_lose_are_refused(monkeypatch):
    fields = [("type", str, f"{__name__}:Forgetful")]
    monkeypatch.setattr(
        f"{__name__}.Config", dataclasses.make_dataclass("Config", fields)
    )
    config = named.load("cartpole", [f"algorithm.type={__name__}:Forgetful"])
    description = runs.describe(config)
    with pytest.raises(errors.Mistake) as error:
        config.create_algorithm(description)
    line = f"Forgetful.persistent at {__file__}:"
    assert str(error.value).startswith(line)
    assert "would lose the weights last/kernel and 1 more; return all" in str(
        error.value
    )
    monkeypatch.setattr(Forgetful, "persistent", lambda self: {"layer": self.layer})
    config.create_algorithm(description)


def test_overrides_are_typed_by_their_fields():
    overrides = ["train.steps=1e3", "algorithm.gae_lambda=1", "environment.id=7x"]
    overrides += ["environment.num_workers=null", "environment.kwargs={a: [1, b]}"]
    config = named.load("debug", overrides, seed=9)
    assert config.train.steps == 1000
    assert isinstance(config.train.steps, int)
    assert isinstance(config.algorithm.gae_lambda, float)
    assert config.environment.id == "7x"
    assert config.environment.num_workers is None
    assert config.environment.kwargs == {"a": [1, "b"]}
    assert config.seed == 9
    assert named.load("debug", ["seed=4"]).seed == 4
    schedule = "algorithm.learning_rate={type: linear, from: 1.0, to: 0, over: 9}"
    rate = named.load("debug", [schedule]).algorithm.learning_rate
    expected = {"type": "linear", "from": 1.0, "to": 0.0, "over": 9}
    values = rate.to_dict()
    assert {key: values[key] for key in expected} == expected
    network = named.load("debug", ["algorithm.network=gru"]).algorithm.network
    assert network == named.load("cartpole_masked").algorithm.network


def test_overrides_supply_what_a_file_leaves_out(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("train: {steps: 9}\nalgorithm: {epochs: 3}\n")
    with pytest.raises(config_.ConfigError, match=r"'environment\.id' is missing"):
        named.load(str(path))
    config = named.load(str(path), ["environment.id=CartPole-v1"])
    assert config.environment == Environment("CartPole-v1")
    assert (config.train.steps, config.algorithm.epochs) == (9, 3)
    whole = ["environment.num_agents=4", "environment={id: CartPole-v1}"]
    config = named.load(str(path), whole)
    assert config.environment == Environment("CartPole-v1", num_agents=4)


@pytest.mark.parametrize("turn", [1, -1])
def test_another_algorithm_begins_with_its_own_defaults(turn, tmp_path):
    sac = experiment.algorithm_config("sac")
    assert named.load("pendulum", ["algorithm.type=sac"]).algorithm == sac()
    assert named.load("pendulum", ["algorithm.type=ppo"]) == named.load("pendulum")
    settings = ["algorithm.type=sac", "algorithm.batch_size=64", "algorithm.tau=0.1"]
    config = named.load("pendulum", settings[::turn])
    assert config.algorithm == sac(batch_size=64, tau=0.1)
    assert config.train == named.load("pendulum").train
    path = tmp_path / "saved.yaml"
    config_files.dump(sections.to_dict(config), path)
    assert named.load(str(path)) == dataclasses.replace(config, name="pendulum")
    settings[0] = "algorithm={type: sac, start_size: 99}"
    expected = sac(batch_size=64, tau=0.1, start_size=99)
    assert named.load("pendulum", settings[::turn]).algorithm == expected
    message = r"unknown config key 'algorithm\.epochs'"
    with pytest.raises(config_.ConfigError, match=message):
        named.load("pendulum", ["algorithm.type=sac", "algorithm.epochs=3"][::turn])
    with pytest.raises(config_.ConfigError, match="did you mean 'sac'"):
        named.load("pendulum", ["algorithm.type=sacc", "algorithm.epochs=3"][::turn])


def test_keras_2_is_refused(monkeypatch):
    config = named.load("debug")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(config_.ConfigError, match="unset TF_USE_LEGACY_KERAS"):
        config.create_algorithm(runs.describe(config))


def test_keys_of_older_versions_are_named():
    values = sections.to_dict(named.load("debug"))
    values["devices"]["environment"] = None
    expected = r"'devices\.environment' is gone, since environments run .*; remove it\."
    with pytest.raises(config_.ConfigError, match=expected):
        experiment.resolve(values)


def test_defaults_are_those_of_environment_and_algorithm():
    config = named.load("cartpole_dqn", ["algorithm.batch_size=7"], seed=3)
    found = config.defaults()
    whole = sections.to_dict(config)
    assert {key: set(found[key]) for key in ("train", "algorithm")} == {
        key: set(whole[key]) for key in ("train", "algorithm")
    }
    assert found["environment"] == sections.to_dict(Environment(id="CartPole-v1"))
    assert found["algorithm"]["type"] == "dqn"
    assert found["algorithm"]["batch_size"] == type(config.algorithm)().batch_size != 7
    assert found["seed"] == 0


def test_algorithms_may_have_no_defaults(tmp_path, monkeypatch):
    (tmp_path / "without_defaults.py").write_text(
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Config:\n"
        "    type: str\n"
        "    size: int\n"
        "class Algorithm: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    algorithm = {"type": "without_defaults:Algorithm", "size": 3}
    config = experiment.resolve(
        {
            "name": "mine",
            "environment": {"id": "CartPole-v1"},
            "train": {},
            "algorithm": algorithm,
        }
    )
    assert config.defaults() is None
