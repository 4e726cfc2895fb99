"""Environments by their descriptions: which backend, what is found, what is refused."""

import dataclasses
import sys

import gymnasium
import pytest

from agents.environments import Environment, config, make, singles
from agents.environments.mujoco import creation, task
from agents.testing import mocks
from agents.tools import config as config_
from agents.tools import spaces


def test_backends_say_what_they_cannot_run():
    with pytest.raises(config.BackendError, match="workers"):
        make.batch(Environment(mocks.MockEnvironment, "envpool", 2))
    with pytest.raises(config_.ConfigError, match="did you mean 'workers'"):
        Environment("CartPole-v1", "wrokers", 2)
    with pytest.raises(singles.EnvironmentNotFound, match="did you mean CartPole"):
        make.batch(Environment("CartPol-v1", "vector", 2))
    with pytest.raises(config.BackendError, match="VectorEnv.*workers"):
        make.batch(Environment(_single, "vector", 2))


def _single(num_envs):
    return gymnasium.make("CartPole-v1")


def test_missing_packages_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(config.BackendError, match="extra .envpool."):
        make.batch(Environment("CartPole-v1", "envpool", 2))
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in [x for x in gymnasium.registry if x.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(singles.EnvironmentNotFound, match="extra .atari."):
        make.describe(Environment("ALE/Pong-v5"))


def test_robots_need_mjbatch(monkeypatch):
    monkeypatch.setitem(sys.modules, "mjbatch", None)
    creation._missing.cache_clear()
    try:
        assert make.choose(Environment("Ant-v5")) == "workers"
        with pytest.raises(config.BackendError, match="mjbatch.*pip install.*workers"):
            make.batch(Environment("Ant-v5", "mujoco", 2))
    finally:
        creation._missing.cache_clear()


def test_tasks_of_mujoco_are_taken_where_they_are_exact(monkeypatch):
    def choose(id="HalfCheetah-v5", **kwargs):
        return make.choose(Environment(id, **kwargs))

    assert choose() == choose(max_length=7) == choose(num_workers=1) == "mujoco"
    assert choose(kwargs={"ctrl_cost_weight": 1, "xml_file": "a.xml"}) == "mujoco"
    assert choose(kwargs={"render_mode": "rgb_array"}) == "workers"
    assert choose(kwargs={"ctrl_cost_wait": 1}) == "workers"
    assert choose("HalfCheetah-v4") == choose(action_mask=True) == "workers"
    spec = dataclasses.replace(
        gymnasium.registry["HalfCheetah-v5"], entry_point=_single
    )
    monkeypatch.setitem(gymnasium.registry, "HalfCheetah-v5", spec)
    assert choose() == "workers"


def test_automatic_backend():
    assert make.choose(Environment("CartPole-v1")) == "workers"
    assert make.choose(Environment(mocks.MockEnvironment)) == "workers"
    assert make.choose(Environment("ALE/Pong-v5")) == "vector"
    assert make.choose(Environment("ALE/Pong-v5", "workers")) == "workers"


def test_unknown_environments_are_suggested():
    with pytest.raises(
        singles.EnvironmentNotFound, match="did you mean CartPole-v1"
    ) as e:
        make.describe(Environment("CartPol-v1"))
    assert "\n" not in str(e.value)
    with pytest.raises(singles.EnvironmentNotFound, match="no module 'no_such_module'"):
        make.describe(Environment("no_such_module:function"))
    with pytest.raises(config_.ConfigError, match="'environment.backend' is 'threads'"):
        Environment("CartPole-v1", "threads", 2)


def test_constructors_that_raise_show_their_traceback():
    def construct(size):
        raise KeyError(size)

    with pytest.raises(singles.ConstructorError, match="raise KeyError"):
        make.describe(Environment(construct, kwargs={"size": 3}))


def test_description_of_environments():
    for id in task.GYMNASIUM:
        alone = make.describe(Environment(id, "workers"))
        assert make.describe(Environment(id)) == alone
    assert make.describe(Environment("Pusher-v5", max_length=9)).max_length == 9
    cartpole = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert make.describe(Environment("CartPole-v1")).max_length == 500
    assert make.describe(Environment("CartPole-v1", max_length=900)).max_length == 900
    assert (
        make.describe(
            Environment("gymnasium.envs.classic_control:CartPole-v1")
        ).max_length
        == 500
    )
    assert make.describe(Environment(cartpole)).max_length is None
    found = make.describe(Environment(cartpole, max_length=7))
    assert found.max_length == 7
    assert found.observation_space.shape == (4,)
    assert found.action_space == gymnasium.spaces.Discrete(2)


def test_masks_that_cannot_be_are_refused():
    for backend in ("vector", "envpool"):
        with pytest.raises(config.BackendError, match=f"{backend} cannot.*workers"):
            make.batch(Environment("CartPole-v1", backend, 2, action_mask=True))
    with pytest.raises(config.BackendError, match="compiled cannot.*workers"):
        make.describe(Environment("CartPole-v1", "compiled", action_mask=True))
    with pytest.raises(spaces.UnsupportedSpaceError, match="Discrete.*got Box"):
        make.describe(Environment("Pendulum-v1", action_mask=True))


@pytest.mark.parametrize("backend", ["serial", "process", "workers", "vector"])
def test_packages_that_register_environments_at_their_import(
    backend, tmp_path, monkeypatch
):
    package, id = f"late_{backend}", f"Late-{backend}-v0"
    source = f"import gymnasium; gymnasium.register('{id}', '{package}:create')"
    create = "def create(**kwargs): return gymnasium.make('CartPole-v1', **kwargs)"
    (tmp_path / f"{package}.py").write_text(f"{source}\n{create}\n")
    monkeypatch.syspath_prepend(tmp_path)
    environment = Environment(f"{package}:{id}", backend, 2, max_length=7)
    found = make.describe(environment)
    assert (found.max_length, found.observation_space.shape) == (7, (4,))
    batch = make.batch(environment)
    assert batch.reset(seeds=[1, 2]).shape == (2, 4)
    batch.close()
    with pytest.raises(singles.EnvironmentNotFound, match=f"did you mean {id}"):
        make.describe(Environment(f"{package}:Lat-{backend}-v0", backend))


@pytest.mark.parametrize(
    ("id", "package"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
        ("highway-fast-v0", "highway_env"),
        ("FetchReach-v3", "gymnasium_robotics"),
    ],
)
@pytest.mark.parametrize("backend", ["workers", "vector"])
def test_packages_that_register_ids_are_suggested(id, package, backend, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    hint = f"; install the package {package} and write {package}:{id}, which imports"
    with pytest.raises(singles.EnvironmentNotFound, match=f"not found{hint}"):
        make.describe(Environment(id, backend))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(singles.EnvironmentNotFound, match=f"found; write {package}:"):
        make.describe(Environment(id, backend))


def test_other_unknown_ids_may_be_those_of_a_package():
    with pytest.raises(singles.EnvironmentNotFound, match="write package:Id"):
        make.describe(Environment("zzz/Qqqqqq-v0"))
    assert make.choose(Environment("ale_py:ALE/Pong-v5")) == "vector"
