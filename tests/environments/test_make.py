"""Environments by their descriptions: which backend, what is found, what is refused."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
import sys
import types

import gymnasium
import numpy as np
import pytest
from gymnasium.envs import registration

from agents.environments import Environment, config, make, singles
from agents.environments.mujoco import creation, task
from agents.testing import mocks
from agents.tools import bounds, checks, errors, spaces
from agents.tools import config as config_
from agents.tools import wrappers as wrappers_


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
    spec = dataclasses.replace(gymnasium.registry["Ant-v5"], kwargs={"frame_skip": 3})
    monkeypatch.setitem(gymnasium.registry, "Ant-v5", spec)
    assert choose("Ant-v5") == "workers"


def test_automatic_backend():
    assert make.choose(Environment("CartPole-v1")) == "workers"
    assert make.choose(Environment(mocks.MockEnvironment)) == "workers"
    assert make.choose(Environment("ALE/Pong-v5")) == "vector"
    assert make.choose(Environment("ALE/Pong-v5", "workers")) == "workers"
    ram = {"obs_type": "ram"}
    assert make.choose(Environment("ALE/Pong-v5", kwargs=ram)) == "workers"


def test_arguments_of_single_and_vectorized_ale():
    pytest.importorskip("ale_py")
    spec = gymnasium.registry["ALE/Pong-v5"]
    single, several = (
        set(inspect.signature(registration.load_env_creator(x)).parameters)
        for x in (spec.entry_point, spec.vector_entry_point)
    )
    assert single - several == make.SINGLE
    assert make.ATARI.keys() <= several - single


def test_vectorized_ale_plays_like_a_single_one():
    pytest.importorskip("ale_py")

    def rewards(**kwargs):
        environment = Environment("ALE/MsPacman-v5", "vector", 2, kwargs=kwargs)
        with contextlib.closing(make.batch(environment)) as batch:
            batch.reset(seeds=[1, 2])
            return {x for _ in range(100) for x in batch.step(np.array([2, 3]))[1]}

    assert max(rewards()) == 10.0
    assert max(rewards(reward_clipping=True)) == 1.0


def test_unknown_environments_are_suggested(monkeypatch):
    with pytest.raises(
        singles.EnvironmentNotFound, match="did you mean CartPole-v1"
    ) as e:
        make.describe(Environment("CartPol-v1"))
    assert "\n" not in str(e.value)
    with pytest.raises(singles.EnvironmentNotFound, match="no module 'no_such_module'"):
        make.describe(Environment("no_such_module:function"))
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(singles.EnvironmentNotFound, match="pip install minigrid"):
        make.describe(Environment("minigrid:MiniGrid-Empty-5x5-v0"))
    here = "agents.testing.mocks"
    with pytest.raises(
        singles.EnvironmentNotFound, match=rf"did you mean {here}:MockEnvironment "
    ):
        make.describe(Environment(f"{here}:MokEnvironment"))
    with pytest.raises(singles.EnvironmentNotFound, match="registers no such id"):
        make.describe(Environment(f"{here}:zzz"))
    with pytest.raises(config_.ConfigError, match="'environment.backend' is 'threads'"):
        Environment("CartPole-v1", "threads", 2)


def test_constructors_that_raise_show_their_traceback():
    def construct(size):
        raise KeyError(size)

    with pytest.raises(singles.ConstructorError, match="raise KeyError"):
        make.describe(Environment(construct, kwargs={"size": 3}))


@pytest.mark.parametrize("backend", ["workers", "serial"])
def test_constructors_leave_the_working_directory(tmp_path, backend):
    before = os.getcwd()

    def construct():
        os.chdir(tmp_path)
        return mocks.MockEnvironment()

    environment = Environment(construct, backend, 2)
    make.describe(environment)
    assert os.getcwd() == before
    with contextlib.closing(make.batch(environment)) as batch:
        batch.reset()
        assert os.getcwd() == before


@pytest.mark.parametrize("backend", ["workers", "serial"])
def test_rows_with_other_spaces_fail_in_one_line(backend):
    workers = {"num_workers": 2} if backend == "workers" else {}
    sizes = None if workers else iter(range(2, 9))

    def construct():
        size = next(sizes) if sizes else os.getpid()
        return mocks.MockEnvironment(observation_shape=(size % 1000 + 2,))

    with pytest.raises(checks.EnvDataError, match=r"row 0 has .* and row 1 has") as e:
        make.batch(Environment(construct, backend, 2, **workers))
    assert "\n" not in str(e.value)


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


def test_keys_that_cannot_be_sorted_are_refused():
    class Mixed(mocks.MockEnvironment):
        def __init__(self):
            super().__init__()
            spaces_ = dict.fromkeys((1, "a"), self.observation_space)
            self.observation_space = gymnasium.spaces.Dict(spaces_)

    with pytest.raises(spaces.UnsupportedSpaceError, match="1, 'a'. cannot be sorted"):
        make.describe(Environment(Mixed))


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
    ("id", "package", "install"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("highway-fast-v0", "highway_env", "highway-env"),
        ("FetchReach-v3", "gymnasium_robotics", "gymnasium-robotics"),
        ("dm_control/cartpole-swingup-v0", "shimmy", r"'shimmy\[dm-control\]'"),
        ("bsuite/catch-v0", "shimmy", r"'shimmy\[bsuite\]'"),
        ("PyFlyt/QuadX-Hover-v4", "PyFlyt", "PyFlyt"),
    ],
)
@pytest.mark.parametrize("backend", ["workers", "vector"])
def test_missing_packages_that_register_ids_are_named(
    id, package, install, backend, monkeypatch
):
    line = f"{id}' needs the package '{package}'; pip install {install}"
    without_extra = types.ModuleType(package)
    for module in (None, without_extra):
        monkeypatch.setitem(sys.modules, package, module)
        with pytest.raises(singles.EnvironmentNotFound, match=line):
            make.describe(Environment(id, backend))


def test_missing_box2d_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [x for x in sys.modules if x.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    line = r"v3' needs the package 'Box2D'; install the extra \[box2d\]"
    with pytest.raises(singles.EnvironmentNotFound, match=line):
        make.describe(Environment("LunarLander-v3", "serial"))


@pytest.mark.parametrize("backend", ["serial", "process", "workers", "vector"])
def test_known_packages_are_imported_for_their_ids(backend, tmp_path, monkeypatch):
    id, source = "MiniGrid-Cart-v0", "gymnasium.envs.classic_control:CartPoleEnv"
    code = f"import gymnasium; gymnasium.register({id!r}, {source!r})"
    (tmp_path / "minigrid.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "minigrid", raising=False)
    environment = Environment(id, backend, 2)
    assert make.describe(environment).observation_space.shape == (4,)
    batch = make.batch(environment)
    assert batch.reset(seeds=[1, 2]).shape == (2, 4)
    batch.close()
    with pytest.raises(singles.EnvironmentNotFound, match=f"did you mean {id}"):
        make.describe(Environment("MiniGrid-Card-v0", backend))
    del gymnasium.registry[id]


ROBOTICS = """
import gymnasium, mujoco
from gymnasium.envs.classic_control import CartPoleEnv

MODEL = "<mujoco><worldbody><body><joint type='slide'/><geom size='1'/></body></worldbody></mujoco>"

class Fetch(CartPoleEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        kind = mujoco.MjModel.from_xml_string(MODEL).jnt_type[0]
        assert kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)

gymnasium.register("FetchCart-v0", Fetch)
"""


@pytest.mark.parametrize("backend", ["workers", "vector"])
@pytest.mark.parametrize("id", ["FetchCart-v0", "gymnasium_robotics:FetchCart-v0"])
def test_joints_of_gymnasium_robotics_have_known_types(
    id, backend, tmp_path, monkeypatch
):
    (tmp_path / "gymnasium_robotics.py").write_text(ROBOTICS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gymnasium_robotics", raising=False)
    batch = make.batch(Environment(id, backend, 2))
    assert batch.reset(seeds=[1, 2]).shape == (2, 4)
    batch.close()
    gymnasium.registry.pop("FetchCart-v0", None)


OLD = "GymV26Environment-v0"
SHIMMY = f"""
import gymnasium

def make(env_id, make_kwargs):
    return gymnasium.make(env_id, **make_kwargs)

del gymnasium.registry[{OLD!r}]
gymnasium.register({OLD!r}, make)
"""


def test_shimmy_is_imported_for_ids_that_wait_for_it(tmp_path, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, OLD, gymnasium.registry[OLD])
    kwargs = {"env_id": "CartPole-v1"}
    monkeypatch.setitem(sys.modules, "shimmy", None)
    with pytest.raises(singles.EnvironmentNotFound, match=r"'shimmy\[gym-v26\]'"):
        make.describe(Environment(OLD, kwargs=kwargs))
    (tmp_path / "shimmy.py").write_text(SHIMMY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shimmy")
    found = make.describe(Environment(OLD, kwargs=kwargs))
    assert found.observation_space.shape == (4,)


def test_checks_of_gym_are_left_out():
    given = []

    def create(id, disable_env_checker=None, **kwargs):
        given.append(disable_env_checker)
        return gymnasium.make(id, **kwargs)

    for chosen in ({}, {"disable_env_checker": False}):
        make.describe(Environment(create, kwargs={"id": "CartPole-v1", **chosen}))
    assert given == [True, False]


def test_packages_that_fail_at_their_import_say_why(tmp_path, monkeypatch):
    (tmp_path / "minigrid.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "minigrid", raising=False)
    with pytest.raises(singles.ConstructorError, match="No module named 'no_such_mod"):
        make.describe(Environment("MiniGrid-Cart-v0"))


def test_other_unknown_ids_may_be_those_of_a_package():
    for id in ("Qqqqqq-v0", "Foo/CartPole-v1"):
        with pytest.raises(singles.EnvironmentNotFound, match="write package:Id"):
            make.describe(Environment(id))
    assert make.choose(Environment("ale_py:ALE/Pong-v5")) == "vector"


class Raised(gymnasium.ObservationWrapper):
    """Wrapper that multiplies observations and then adds to them."""

    def __init__(self, env, plus=0.0, times=1.0):
        super().__init__(env)
        if not times:
            raise KeyError("nothing is left")
        self._plus, self._times = plus, times

    def observation(self, observation):
        return observation * np.float32(self._times) + np.float32(self._plus)


class Open(gymnasium.Wrapper):
    """Wrapper that takes any arguments."""

    def __init__(self, env, times=1, **others):
        super().__init__(env)
        assert (times, others) == (2, {"plus": 3})


def test_wrappers_may_take_any_arguments():
    wrapper = {"type": f"{__name__}:Open", "times": 2, "plus": 3}
    environment = Environment("CartPole-v1", "serial", wrappers=[wrapper])
    assert make.describe(environment).max_length == 500


def unwrapped(env):
    return 5


def alone():
    return gymnasium.make("CartPole-v1")


@pytest.fixture
def importable(monkeypatch):
    """Let this module be imported by its name, in other processes, too."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent)


@pytest.mark.parametrize("backend", ["serial", "process", "workers", "vector"])
@pytest.mark.usefixtures("importable")
def test_wrappers_apply_in_order(backend):
    path = "test_make:Raised"
    wrappers = [path, {"type": path, "plus": 1.0}, {"type": path, "times": 2.0}]
    plain = Environment(mocks.MockEnvironment, "serial", 2)
    if backend == "vector":
        plain = Environment("CartPole-v1", "vector", 2)
        plain = dataclasses.replace(plain, kwargs={"vectorization_mode": "sync"})
    wrapped = dataclasses.replace(plain, backend=backend, wrappers=wrappers)
    make.describe(wrapped)
    batches = [make.batch(x) for x in (plain, wrapped)]
    first, second = (x.reset(seeds=[3, 4]) for x in batches)
    np.testing.assert_allclose(second, 2 * (first + 1), rtol=1e-6)
    for batch in batches:
        batch.close()


class Old(gymnasium.Env):
    """Environment of today's class with the interface of old ones."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.ones(1, np.float32), 2.0, action == 1, {}


def test_old_interface_is_adapted_as_the_error_says():
    batch = make.batch(Environment(Old, "serial", 2))
    with pytest.raises(checks.EnvDataError) as error:
        batch.reset(seeds=[1, 2])
    assert "return agents.tools.wrappers.OldGym(env)." in str(error.value)
    adapted = Environment(lambda: wrappers_.OldGym(Old()), "serial", 2, max_length=9)
    batch = make.batch(adapted)
    batch.reset(seeds=[1, 2])
    _, reward, terminated, truncated, _ = batch.step(np.array([0, 1]))
    assert reward.tolist() == [2, 2]
    assert (terminated.tolist(), truncated.any()) == ([False, True], False)


class Outer(Old):
    """Environment that makes another one, which does not exist."""

    def __init__(self):
        gymnasium.make("Innner-v0")


def test_missing_environments_inside_of_others_are_named():
    gymnasium.register("OuterForTest-v0", Outer)
    with pytest.raises(errors.Mistake, match="'OuterForTest-v0'.*Innner"):
        make.describe(Environment("OuterForTest-v0"))
    del gymnasium.registry["OuterForTest-v0"]


class Grid(Old):
    """Environment whose attribute `env` is no environment."""

    def __init__(self):
        self.env = np.zeros((3, 3))


def test_attributes_with_the_name_of_environments_are_none():
    assert make.describe(Environment(Grid)).max_length is None


def test_wrappers_need_single_environments():
    wrappers = ["gymnasium.wrappers:ClipReward"]
    assert make.choose(Environment("Ant-v5", wrappers=wrappers)) == "workers"
    assert make.choose(Environment("ALE/Pong-v5", wrappers=wrappers)) == "workers"
    for backend in ("envpool", "mujoco", "compiled"):
        with pytest.raises(bounds.OutOfBounds, match=f"with backend {backend}"):
            Environment("Pendulum-v1", backend, wrappers=wrappers)
    catch = Environment("agents.environments.functional:Catch", wrappers=wrappers)
    with pytest.raises(config.BackendError, match="leave the wrappers out"):
        make.describe(catch)
    with pytest.raises(config.BackendError, match="at once.*backend workers"):
        make.batch(Environment(_single, "vector", 2, wrappers=wrappers))


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("nothing_here:Mine", "'nothing_here'; install its package, or start in the"),
        ("gymnasium.wrappers:Mine", "cannot import 'gymnasium.wrappers:Mine': module"),
        (
            {"type": "test_make:Raised", "times": 0},
            "'test_make:Raised'.*nothing is left",
        ),
        ({"type": "test_make:Raised", "time": 0}, "'time' .*did you mean 'times'"),
        ("test_make:unwrapped", "wrapper 'test_make:unwrapped' must make .* got int"),
        (
            "test_make:alone",
            "wrapper 'test_make:alone' must take the environment first",
        ),
    ],
)
@pytest.mark.usefixtures("importable")
def test_wrappers_that_fail_are_named(wrapper, message):
    with pytest.raises(config_.ConfigError, match=message):
        make.describe(Environment("CartPole-v1", wrappers=[wrapper]))


@pytest.mark.parametrize("wrapper", [5, "Clip", {"type": 5}, {"plus": 1}])
def test_wrappers_are_declared_by_their_path(wrapper):
    with pytest.raises(config_.ConfigError, match=r"environment\.wrappers"):
        Environment("CartPole-v1", wrappers=[wrapper])


def test_text_is_named_and_left_out_by_a_wrapper():
    class Speaking(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("CartPole-v1"))
            seen = {
                "mission": gymnasium.spaces.Text(9),
                "x": self.env.observation_space,
            }
            self.observation_space = gymnasium.spaces.Dict(seen)

    found = make.describe(Environment(Speaking)).observation_space
    with pytest.raises(spaces.UnsupportedSpaceError, match="part 'mission' .*wrappers"):
        spaces.spec(found)
    keep = {"type": "gymnasium.wrappers:FilterObservation", "filter_keys": ["x"]}
    found = make.describe(Environment(Speaking, wrappers=[keep])).observation_space
    assert spaces.spec(found).keys() == {"x"}


class Steps(gymnasium.Env):
    """Observes its number of steps, in an array that all of its kind share or not."""

    observation_space = gymnasium.spaces.Box(0, 1000, (1,))
    action_space = gymnasium.spaces.Discrete(10)
    shared = np.zeros(1, np.float32)

    def __init__(self, share=True):
        self.array = self.shared if share else np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.array[0] = 0
        return self.array, {}

    def step(self, action):
        self.array[0] = action
        return self.array, 0.0, False, False, {}


ONE = Steps()


def one_for_all():
    return ONE


@pytest.mark.parametrize("backend", ["serial", "workers"])
def test_functions_that_return_the_same_environment_are_refused(backend):
    environment = Environment(one_for_all, backend, 4, num_workers=None)
    if backend == "workers":
        environment = dataclasses.replace(environment, num_workers=2)
    text = "^Environment rows 0 and 1 are the same object; the function must create"
    with pytest.raises(checks.EnvDataError, match=text):
        make.batch(environment)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("backend", ["serial", "process", "workers"])
def test_environments_may_share_their_arrays(backend, share):
    environment = Environment(Steps, backend, 3, kwargs={"share": share})
    if backend == "workers":
        environment = dataclasses.replace(environment, num_workers=1)
    with contextlib.closing(make.batch(environment)) as batch:
        batch.reset()
        for _ in range(2):
            observation, *_ = batch.step(np.array([3, 1, 2]))
            assert observation[:, 0].tolist() == [3, 1, 2]


class Unmasked(Steps):
    """Forgets its action mask when it is told to."""

    def step(self, action):
        mask = np.ones(10, np.int8)
        return *super().step(action)[:4], {} if action == 9 else {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {"action_mask": np.ones(10, np.int8)}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_batches_go_on_after_wrong_data(backend):
    environment = Environment(Unmasked, backend, 3, action_mask=True)
    with contextlib.closing(make.batch(environment)) as batch:
        batch.reset()
        for row in (0, 2, 1):
            wrong = np.arange(3)
            wrong[row] = 9
            with pytest.raises(checks.EnvDataError, match=f"row {row}.*action_mask"):
                batch.step(wrong)
            batch.reset()
        observation, *_ = batch.step(np.array([3, 1, 2]))
        assert observation["observation"][:, 0].tolist() == [3, 1, 2]


def limited(max_steps):
    return gymnasium.wrappers.TimeLimit(Steps(), int(max_steps))


def test_descriptions_of_drawn_arguments_are_always_the_same():
    kwargs = {"max_steps": {"type": "uniform", "low": 100, "high": 1e6}}
    environment = Environment(limited, "serial", 1, kwargs=kwargs)
    assert len({make.describe(environment).max_length for _ in range(3)}) == 1


def vectorized(num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs, max_episode_steps=300)


def test_limits_that_functions_give_to_vectorized_ids_are_found():
    assert make.describe(Environment(vectorized, "vector", 2)).max_length == 300


class Unlimited(Steps):
    """Says so by a number."""

    def __init__(self):
        self._max_episode_steps = -1


def test_limits_of_no_steps_are_none():
    assert make.describe(Environment(Unlimited)).max_length is None
    limited = [{"type": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 3}]
    environment = Environment(Unlimited, wrappers=limited)
    assert make.describe(environment).max_length == 3
