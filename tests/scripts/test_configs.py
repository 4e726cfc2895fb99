import dataclasses
import sys

import pytest

from agents.environments import make
from agents.scripts import configs, experiment, runs
from agents.tools import config as config_
from agents.tools import spaces

NAMES = ["pendulum", "cartpole", "reacher", "cheetah", "walker", "hopper", "ant"]
NAMES += ["humanoid", "swimmer"]


def test_experiments():
    names = [*NAMES, *(f"{name}_clip" for name in NAMES), "cartpole_masked", "debug"]
    assert set(names) <= set(configs.EXPERIMENTS)


@pytest.mark.parametrize("name", configs.EXPERIMENTS)
def test_experiment_is_a_file_that_is_the_experiment(name, tmp_path):
    config = configs.load(name)
    assert config.name == name
    assert config == configs.EXPERIMENTS[name]()
    path = tmp_path / "other.yaml"
    config_.dump(config, path)
    assert configs.load(str(path)) == config
    assert config_.load(path) == config_.to_dict(config)


@pytest.mark.parametrize("name", configs.EXPERIMENTS)
def test_environment_of_an_experiment(name):
    environment = configs.load(name).environment
    description = make.describe(
        environment.id, environment.max_length, environment.kwargs
    )
    assert description.max_length is not None
    spaces.spec(description.observation_space)
    spaces.spec(description.action_space)


def test_settings_of_the_paper():
    config = configs.load("cheetah")
    assert config.environment.id == "HalfCheetah-v5"
    assert config.train.steps == 10_000_000
    algorithm = config.algorithm
    assert (algorithm.memory, algorithm.objective) == ("episodes", "kl")
    assert (algorithm.update_every, algorithm.epochs) == (25, 25)
    assert (algorithm.learning_rate, algorithm.value_learning_rate) == (1e-4, 1e-3)
    assert (algorithm.kl_target, algorithm.kl_cutoff_factor) == (0.01, 2)
    assert configs.load("walker").algorithm.discount == 0.995
    for name in NAMES:
        assert configs.load(f"{name}_clip").algorithm.objective == "clip"


def test_overrides_are_typed_by_their_fields():
    overrides = ["train.steps=1e3", "algorithm.gae_lambda=1", "environment.id=7x"]
    overrides += ["environment.num_workers=null", "environment.kwargs={a: [1, b]}"]
    config = configs.load("debug", overrides, seed=9)
    assert config.train.steps == 1000
    assert isinstance(config.train.steps, int)
    assert isinstance(config.algorithm.gae_lambda, float)
    assert config.environment.id == "7x"
    assert config.environment.num_workers is None
    assert config.environment.kwargs == {"a": [1, "b"]}
    assert config.seed == 9
    assert configs.load("debug", ["seed=4"]).seed == 4
    schedule = "algorithm.learning_rate={type: linear, from: 1.0, to: 0, over: 9}"
    rate = configs.load("debug", [schedule]).algorithm.learning_rate
    expected = {"type": "linear", "from": 1.0, "to": 0.0, "over": 9}
    values = rate.to_dict()
    assert {key: values[key] for key in expected} == expected
    network = configs.load("debug", ["algorithm.network=gru"]).algorithm.network
    assert network == configs.load("cartpole_masked").algorithm.network


def test_part_of_a_config_is_completed_by_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("environment: {id: CartPole-v1}\nalgorithm: {discount: 0.5}\n")
    config = configs.load(str(path), ["train.steps=5"])
    assert config.name == "mine"
    assert config.train.steps == 5
    assert config.environment == experiment.Environment("CartPole-v1")
    cls = experiment.algorithm_config("ppo")
    assert config.algorithm == cls(discount=0.5)


def test_algorithms_may_be_named_by_their_path(tmp_path):
    path = tmp_path / "mine.yaml"
    algorithm = "algorithm: {type: 'agents.algorithms.dqn:DQN', batch_size: 7}"
    path.write_text(f"environment: {{id: CartPole-v1}}\n{algorithm}\n")
    config = configs.load(str(path))
    assert config.algorithm.batch_size == 7
    agent = config.create_algorithm(runs.describe(config), 2)
    assert type(agent).__name__ == "DQN"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing_here:Mine", "cannot import 'nothing_here:Config': No module named"),
        ("agents.returns:Mine", "cannot import 'agents.returns:Config': module"),
    ],
)
def test_wrong_paths_of_algorithms(kind, message):
    with pytest.raises(config_.ConfigError, match=message):
        configs.load("cartpole", [f"algorithm.type={kind}"])


def test_list_of_configs(capsys):
    assert configs.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(configs.EXPERIMENTS)
    assert lines[0].split(maxsplit=1) == [
        "pendulum",
        "Swing a pendulum up and balance it.",
    ]


def test_printed_config_is_a_file_that_is_the_config(tmp_path, capsys):
    assert configs.main(["cartpole_dqn", "--set", "train.steps=123"]) == 0
    path = tmp_path / "printed.yaml"
    path.write_text(capsys.readouterr().out)
    assert configs.load(str(path)) == configs.load("cartpole_dqn", ["train.steps=123"])


OWN = """
environment: {id: 'own_code:make'}
preprocessing: [{type: function, path: 'own_code:f'}, {type: 'own_code:Stage'}]
algorithm:
  ALGORITHM
  network:
    layers: ['own_code:Layer', {type: function, path: 'own_code:f'}, 5]
    streams: {x: ['own_code:Layer']}
    join: own_code:join
"""


@pytest.mark.parametrize("kind", ["type: ppo", "type: 'own_code:Algorithm'"])
def test_nothing_is_imported_to_print_a_config(tmp_path, monkeypatch, capsys, kind):
    (tmp_path / "own_code.py").write_text("raise SystemExit('It is imported.')")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("ALGORITHM", kind))
    changes = ["--set", "environment.num_agents=3"]
    assert configs.main([str(path), *changes]) == 0
    assert "own_code" not in sys.modules
    printed = config_.parse(capsys.readouterr().out, "printed")
    assert printed["environment"]["num_agents"] == 3
    assert printed["train"]["keep_checkpoints"] == 5
    assert printed["algorithm"]["network"]["join"] == "own_code:join"
    assert ("discount" in printed["algorithm"]) == (kind == "type: ppo")
    with pytest.raises(config_.ConfigError, match=r"SystemExit\(It is imported\."):
        configs.load(str(path))


def test_what_cannot_be_printed(capsys):
    assert configs.main(["cartpol"]) == 2
    error = capsys.readouterr().err
    assert error == "error: unknown config 'cartpol'; did you mean 'cartpole'?\n"


def test_halves_need_an_even_number_of_agents():
    odd = ["environment.num_agents=5", "environment.action_lag=true"]
    with pytest.raises(config_.ConfigError, match="action_lag.* even .* got 5"):
        configs.load("debug", odd)
    environment = configs.load("cheetah", ["environment.num_agents=64"]).environment
    assert runs.in_halves(environment)
    for change in ({"num_agents": 63}, {"num_agents": 16}, {"backend": "process"}):
        assert not runs.in_halves(dataclasses.replace(environment, **change))
    few = dataclasses.replace(environment, num_agents=2, action_lag=True)
    assert runs.in_halves(few)


def test_action_mask_is_no_argument_of_the_environment():
    environment = experiment.Environment(id="x", kwargs={"action_mask": 1})
    assert environment.arguments == {"action_mask": 1}
    environment = dataclasses.replace(environment, action_mask=True)
    assert environment.arguments == {"action_mask": 1, make.ACTION_MASK: True}
    assert environment.kwargs == {"action_mask": 1}
