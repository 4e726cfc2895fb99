"""The named configs."""

import pytest

from agents.environments import make
from agents.experiments import named
from agents.tools import config_files, sections, spaces

NAMES = ["pendulum", "cartpole", "reacher", "cheetah", "walker", "hopper", "ant"]
NAMES += ["humanoid", "swimmer"]


def test_experiments():
    names = [*NAMES, *(f"{name}_clip" for name in NAMES), "cartpole_masked", "debug"]
    assert set(names) <= set(named.EXPERIMENTS)


@pytest.mark.parametrize("name", named.EXPERIMENTS)
def test_experiment_is_a_file_that_is_the_experiment(name, tmp_path):
    config = named.load(name)
    assert config.name == name
    assert config == named.EXPERIMENTS[name]()
    path = tmp_path / "other.yaml"
    config_files.dump(config, path)
    assert named.load(str(path)) == config
    assert config_files.load(path) == sections.to_dict(config)


@pytest.mark.parametrize("name", named.EXPERIMENTS)
def test_environment_of_an_experiment(name):
    environment = named.load(name).environment
    description = make.describe(environment)
    assert description.max_length is not None
    spaces.spec(description.observation_space)
    spaces.spec(description.action_space)


def test_settings_of_the_paper():
    config = named.load("cheetah")
    assert config.environment.id == "HalfCheetah-v5"
    assert config.train.steps == 10_000_000
    algorithm = config.algorithm
    assert (algorithm.memory, algorithm.objective) == ("episodes", "kl")
    assert (algorithm.update_every, algorithm.epochs) == (25, 25)
    assert (algorithm.learning_rate, algorithm.value_learning_rate) == (1e-4, 1e-3)
    assert (algorithm.kl_target, algorithm.kl_cutoff_factor) == (0.01, 2)
    assert named.load("walker").algorithm.discount == 0.995
    for name in NAMES:
        assert named.load(f"{name}_clip").algorithm.objective == "clip"


def test_files_do_not_hide_named_configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "debug").write_text("{name: other, environment: {id: CartPole-v1}}\n")
    assert named.load("debug") == named.EXPERIMENTS["debug"]()
    assert named.load("./debug").name == "other"
