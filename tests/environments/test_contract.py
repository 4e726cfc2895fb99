"""What all backends have in common, besides what `testing.check_batch_env` checks."""

import copy
import functools
import os
import signal
import sys

import gymnasium
import numpy as np
import pytest

from agents import testing
from agents.environments import make, vector
from agents.tools import batch_env, mocks, processes, spaces

NAMES = ("serial", "process", "workers")
VECTOR = ("vector-NextStep", "vector-SameStep", "vector-Disabled", "vector-async")


def nested(durations):
    """Mock with nested observations that share one reused array."""
    env = mocks.MockEnvironment((3,), durations=durations)
    space = gymnasium.spaces.Dict(
        x=env.observation_space,
        y=gymnasium.spaces.Tuple([env.observation_space, env.observation_space]),
    )
    return gymnasium.wrappers.TransformObservation(
        env, lambda x: {"x": x, "y": (x, x)}, space
    )


class Mortal(mocks.MockEnvironment):
    """Kills its process at the second step."""

    def step(self, action):
        if self.lengths[-1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def vectorize(id, backend, max_length, num_envs, **kwargs):
    """Vector environment of Gymnasium with the autoreset mode that the name says."""

    def one():  # Gymnasium keeps references to observations, which mocks reuse.
        env = make.constructor(id, max_length, kwargs)()
        space = env.observation_space
        return gymnasium.wrappers.TransformObservation(env, copy.deepcopy, space)

    if backend == "vector-async":
        cls, mode = gymnasium.vector.AsyncVectorEnv, "SameStep"
    else:
        cls, mode = gymnasium.vector.SyncVectorEnv, backend.removeprefix("vector-")
    return cls([one] * num_envs, autoreset_mode=gymnasium.vector.AutoresetMode(mode))


@pytest.fixture
def create():
    """Function like `make.batch`, with two workers, that closes everything at last."""
    batches = []

    def function(id, num_agents, backend, **kwargs):
        if backend in VECTOR:
            id = functools.partial(vectorize, id, backend, kwargs.get("max_length"))
            backend = "vector"
            kwargs.pop("max_length", None)
        batches.append(make.batch(id, num_agents, backend, num_workers=2, **kwargs))
        return batches[-1]

    yield function
    for batch in batches:
        batch.close()


@pytest.mark.parametrize("backend", NAMES + VECTOR)
@pytest.mark.parametrize("truncate", [False, True])
def test_episodes_follow_the_declared_durations(create, backend, truncate):
    durations = (1, 3, 2)
    env = functools.partial(
        mocks.MockEnvironment, durations=durations, truncate=truncate
    )
    batch = create(env, 3, backend)
    observation = batch.reset()
    found = [[] for _ in range(3)]
    for _ in range(12):
        following, reward, terminated, truncated, _ = batch.step(np.zeros((3, 1)))
        done = terminated | truncated
        assert not (terminated if truncate else truncated).any()
        for row in range(3):
            before = mocks.MockEnvironment.decode(observation[row, 0])
            after = mocks.MockEnvironment.decode(following[row, 0])
            assert after == (before[0], before[1] + 1)
            assert reward[row] == after[1]
            if done[row]:
                found[row].append(int(after[1]))
        observation = following
        if done.any():
            observation[done] = batch.reset(np.flatnonzero(done))
    assert found == [[1, 3, 2, 1, 3, 2]] * 3


@pytest.mark.parametrize("backend", NAMES + VECTOR)
def test_partial_reset_touches_only_its_rows(create, backend):
    batch = create(mocks.MockEnvironment, 5, backend, kwargs={"durations": [4]})
    batch.reset()
    actions = np.zeros((5, 1))
    batch.step(actions)
    assert batch.reset([3, 1])[:, 0].tolist() == [1000, 1000]
    observation, reward, *_ = batch.step(actions)
    assert observation[:, 0].tolist() == [2, 1001, 2, 1001, 2]
    assert reward.tolist() == [2, 1, 2, 1, 2]


@pytest.mark.parametrize("backend", NAMES + VECTOR)
def test_rows_must_be_reset_before_steps(create, backend):
    batch = create(mocks.MockEnvironment, 3, backend, kwargs={"durations": [1, 2]})
    actions = np.zeros((3, 1))
    with pytest.raises(RuntimeError, match=r"rows \[0, 1, 2\] are done"):
        batch.step(actions)
    batch.reset()
    batch.step(actions)
    batch.reset([0, 2])
    with pytest.raises(RuntimeError, match=r"rows \[1\] are done"):
        batch.step(actions)
    batch.reset([1])
    assert batch.step(actions)[0][:, 0].tolist() == [1001] * 3


@pytest.mark.parametrize("backend", NAMES + VECTOR)
def test_kept_observations_never_change(create, backend):
    batch = create(nested, 3, backend, kwargs={"durations": [200]})
    kept = [batch.reset()]
    for _ in range(100):
        kept.append(batch.step(np.zeros((3, 1)))[0])
    batch.reset()
    for time, observation in enumerate(kept):
        for leaf in (observation["x"], *observation["y"]):
            np.testing.assert_array_equal(leaf, np.full((3, 3), time))
            assert leaf.base is None
            assert leaf.flags.writeable


@pytest.mark.parametrize("backend", NAMES + VECTOR)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_every_backend_conforms(create, backend, name):
    testing.check_batch_env(
        lambda: create(name, 3, backend, max_length=20),
        reference=lambda: gymnasium.make(name, max_episode_steps=20),
        steps=50,
    )


@pytest.mark.parametrize("backend", NAMES + VECTOR)
def test_restarted_rows_show_both_observations(create, backend):
    batch = create(mocks.MockEnvironment, 3, backend, kwargs={"durations": [2, 9]})
    batch.reset()
    batch.reset([1])
    found = []
    for _ in range(3):
        batch.start(np.zeros((3, 1)), restart=True)
        result = batch.finish()
        last, following = np.split(result.numbers[:, batch_env.NUMBERS :], 2, 1)
        found.append((last[:, 0].tolist(), following[:, 0].tolist()))
    assert found == [
        ([1, 1001, 1], [1, 1001, 1]),
        ([2, 1002, 2], [1000, 1002, 1000]),
        ([1001, 1003, 1001], [1001, 1003, 1001]),
    ]
    assert batch.step(np.zeros((3, 1)))[0][:, 0].tolist() == [1002, 1004, 1002]


@pytest.mark.parametrize("backend", NAMES)
def test_halves_step_independently(backend):
    first, second = make.halves(
        mocks.MockEnvironment, 6, backend, 2, kwargs={"durations": [3]}
    )
    try:
        assert len(first) == len(second) == 3
        first.reset()
        second.reset([2])
        second.reset([0, 1])
        actions = np.zeros((3, 1))
        for time in range(1, 8):
            first.start(actions, restart=True)
            second.start(actions, restart=True)
            parts = [second, first] if time % 2 else [first, second]
            for part in parts:
                result = part.finish()
                column = result.numbers[:, batch_env.NUMBERS]
                episode, step = divmod(time - 1, 3)
                assert column.tolist() == [1000 * episode + step + 1] * 3
                assert result.done.tolist() == [step == 2] * 3
        first.reset([1])
        first.start(actions, restart=False)
        assert second.step(actions)[0][:, 0].tolist() == [2002] * 3
        column = first.finish().numbers[:, batch_env.NUMBERS]
        assert column.tolist() == [2002, 3001, 2002]
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("backend", ["process", "workers"])
def test_halves_that_break_name_rows_of_the_whole(backend):
    parts = make.halves(Mortal, 4, backend, 2)
    try:
        for part in parts:
            part.reset()
        with pytest.raises(ValueError, match="row 3"):
            parts[1].step([[0.0], [2.0]])
        for part in parts:
            part.start(np.zeros((2, 1)))
        for part in reversed(parts):
            part.finish()
        with pytest.raises(processes.EnvProcessError, match="row [23].*SIGKILL"):
            parts[1].step(np.zeros((2, 1)))
    finally:
        for part in parts:
            part.close()


@pytest.mark.parametrize("backend", NAMES)
def test_environments_are_accessible_by_row(create, backend):
    batch = create(mocks.MockEnvironment, 3, backend, kwargs={"durations": [4, 5]})
    batch.reset()
    batch.reset([2])
    assert len(batch) == 3
    assert [batch[row].lengths for row in range(3)] == [[0], [0], [0, 0]]
    assert batch[-1].lengths == [0, 0]
    with pytest.raises(AttributeError, match="missing"):
        _ = batch[1].missing
    with pytest.raises(IndexError):
        batch[3]
    if backend != "serial":
        assert batch[1].call("decode", 3004)() == (3, 4)


@pytest.mark.parametrize("backend", ["process", "workers"])
def test_closed_batches_say_so(create, backend):
    batch = create(mocks.MockEnvironment, 2, backend)
    batch.close()
    with pytest.raises(RuntimeError, match="closed"):
        batch.reset()


@pytest.mark.parametrize("backend", NAMES)
def test_values_that_are_not_finite_name_the_row(create, backend):
    def construct():
        env = mocks.MockEnvironment(durations=[9])
        return gymnasium.wrappers.TransformReward(
            env, lambda reward: np.nan if reward == 2 else reward
        )

    batch = create(construct, 3, backend)
    batch.reset()
    batch.step(np.zeros((3, 1)))
    batch.reset([0, 2])
    with pytest.raises(ValueError, match="row 1: reward nan is not finite"):
        batch.step(np.zeros((3, 1)))


@pytest.mark.parametrize("backend", NAMES)
def test_observations_of_wrong_shape_name_the_row(create, backend):
    def construct():
        env = mocks.MockEnvironment(durations=[9])
        return gymnasium.wrappers.TransformObservation(
            env, lambda x: x[:1] if x[0] == 1001 else x, env.observation_space
        )

    batch = create(construct, 3, backend)
    batch.reset()
    batch.reset([1])
    with pytest.raises(
        ValueError, match=r"row 1: expected observation .*\[2\], got .*\[1\]"
    ):
        batch.step(np.zeros((3, 1)))


class Whole(gymnasium.vector.VectorEnv):
    """Vector environment that does what its arguments say, right or wrong."""

    def __init__(self, num_envs, mode="NextStep", obeys=True, final=True, shape=(1,)):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode(mode)}
        self.single_observation_space = gymnasium.spaces.Box(0, 99, shape, np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self._obeys, self._final = obeys, final

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask")
        if mask is None or not self._obeys:
            self._time = np.zeros((self.num_envs, 1), np.float32)
        else:
            self._time[mask] = 0
        return self._time, {}

    def step(self, actions):
        self._time += 1
        done = self._time[:, 0] == np.arange(self.num_envs) + 2
        info = {"final_obs": self._time.copy()} if self._final else {}
        if self.metadata["autoreset_mode"].value == "SameStep":
            self._time[done] = 0
        no = np.zeros(self.num_envs, bool)
        return self._time, np.ones(self.num_envs), done, no, info


def test_vector_environments_with_one_array_of_last_observations():
    batch = make.batch(Whole, 2, "vector", kwargs={"mode": "SameStep"})
    batch.reset()
    found = []
    for _ in range(3):
        batch.start(np.zeros(2, np.int64), restart=True)
        numbers = batch.finish().numbers
        found.append(numbers[:, batch_env.NUMBERS :].tolist())
    assert found == [[[1, 1], [1, 1]], [[2, 0], [2, 2]], [[1, 1], [3, 0]]]


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"obeys": False}, "Whole does not obey reset_mask"),
        ({"mode": "SameStep", "final": False}, "final_obs"),
        ({"shape": (3,)}, "declares observation of float32 .3. per row, but gives"),
    ],
)
def test_vector_environments_that_break_the_rules(kwargs, text):
    batch = make.batch(Whole, 2, "vector", kwargs=kwargs)

    def run():
        batch.reset()
        for _ in range(3):
            batch.start(np.zeros(2, np.int64), restart=True)
            batch.finish()

    with pytest.raises(batch_env.EnvDataError, match=text):
        run()


class Reusing(mocks.MockEnvironment):
    """Mock of one step, whose first observation is the same number ever again if asked."""

    def __init__(self, constant=False):
        super().__init__((1,), durations=[1])
        self._constant = constant

    def _observe(self):
        observation = super()._observe()
        if self._constant:
            observation[...] = 3
        return observation


def overwritten(cls, constant, num_envs):
    one = functools.partial(Reusing, constant)
    return cls([one] * num_envs, autoreset_mode="SameStep")


@pytest.mark.parametrize(
    "cls", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv]
)
def test_last_observations_that_are_overwritten_are_found_out(create, cls):
    batch = create(functools.partial(overwritten, cls, False), 2, "vector")
    batch.reset()

    def run():
        for _ in range(vector.FINALS // 2 + 1):
            batch.start(np.zeros((2, 1)), restart=True)
            batch.finish()

    with pytest.raises(batch_env.EnvDataError, match="first observation of the next"):
        run()


def test_last_observations_may_equal_all_others(create):
    cls = gymnasium.vector.SyncVectorEnv
    batch = create(functools.partial(overwritten, cls, True), 2, "vector")
    batch.reset()
    for _ in range(vector.FINALS):
        batch.start(np.zeros((2, 1)), restart=True)
        assert batch.finish().numbers[:, batch_env.NUMBERS :].tolist() == [[3, 3]] * 2


def test_vector_environments_are_truncated_in_time():
    batch = make.batch(Whole, 2, "vector", max_length=2, kwargs={"mode": "SameStep"})
    batch.reset()
    ends = []
    for _ in range(5):
        batch.start(np.zeros(2, np.int64), restart=True)
        numbers = batch.finish().numbers
        ends.append(numbers[:, [1, 2]].tolist())
    both, late = [1, 1], [0, 1]
    assert ends == [
        [[0, 0]] * 2,
        [both, late],
        [[0, 0]] * 2,
        [both, late],
        [[0, 0]] * 2,
    ]


def test_backends_say_what_they_cannot_run():
    with pytest.raises(make.BackendError, match="workers"):
        make.batch(mocks.MockEnvironment, 2, "envpool")
    with pytest.raises(make.BackendError, match="choose from"):
        make.batch("CartPole-v1", 2, "wrokers")
    with pytest.raises(make.EnvironmentNotFound, match="did you mean CartPole"):
        make.batch("CartPol-v1", 2, "vector")
    with pytest.raises(make.BackendError, match="VectorEnv.*workers"):
        make.batch(_single, 2, "vector")


def _single(num_envs):
    return gymnasium.make("CartPole-v1")


def test_missing_packages_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(make.BackendError, match="extra .envpool."):
        make.batch("CartPole-v1", 2, "envpool")
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in [x for x in gymnasium.registry if x.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(make.EnvironmentNotFound, match="extra .atari."):
        make.describe("ALE/Pong-v5")


def test_automatic_backend():
    assert make.choose("CartPole-v1") == "workers"
    assert make.choose(mocks.MockEnvironment) == "workers"
    assert make.choose("ALE/Pong-v5") == "vector"
    assert make.choose("ALE/Pong-v5", "workers") == "workers"


def test_atari():
    """Against a second batch, which is not disturbed."""
    pytest.importorskip("ale_py")
    kwargs = {"noop_max": 0, "use_fire_reset": False, "reward_clipping": False}
    batches = [
        make.batch("ALE/Breakout-v5", 3, "auto", max_length=40, kwargs=kwargs)
        for _ in range(2)
    ]
    description = make.describe("ALE/Breakout-v5", 40, kwargs)
    assert description.max_length == 40
    assert description.observation_space == batches[0].observation_space
    first, second = (batch.reset(seeds=[3, 4, 5]) for batch in batches)
    assert first.dtype == np.uint8
    assert first.shape == (3, 4, 84, 84)
    np.testing.assert_array_equal(first, second)
    rng = np.random.default_rng(0)
    others = [0, 2]
    for time in range(45):
        if time == 20:
            assert batches[0].reset([1]).shape == (1, 4, 84, 84)
        actions = rng.integers(0, description.action_space.n, 3)
        for batch in batches:
            batch.start(actions, restart=True)
        ours, theirs = (batch.finish() for batch in batches)
        np.testing.assert_array_equal(ours.numbers[others], theirs.numbers[others])
        np.testing.assert_array_equal(
            ours.observation[0][others], theirs.observation[0][others]
        )
        assert theirs.done.tolist() == [time == 39] * 3
        assert ours.done.tolist() == [time == 39, False, time == 39]
        following = theirs.following[0] != theirs.observation[0]
        assert following.any() == (time == 39)
    for batch in batches:
        batch.close()


def test_envpool_trajectories():
    """Against Gymnasium for what does not depend on random numbers."""
    pytest.importorskip("envpool")
    batch = make.batch("Pendulum-v1", 4, "envpool", max_length=30)
    description = make.describe("Pendulum-v1", 30, None, "envpool")
    assert description.max_length == 30
    observation = following = first = batch.reset(seeds=[5, 6, 7, 8])
    plain = gymnasium.make("Pendulum-v1").unwrapped
    plain.reset()
    for time in range(65):
        if time % 30 == 0:
            observation = following
        actions = np.full((4, 1), np.sin(time), np.float32)
        batch.start(actions, restart=True)
        outcome = batch.finish()
        last, following = np.split(outcome.numbers[:, batch_env.NUMBERS :], 2, 1)
        for row in range(4):
            x, y, speed = observation[row]
            plain.state = np.array([np.arctan2(y, x), speed], np.float64)
            expected, reward, *_ = plain.step(actions[row])
            np.testing.assert_allclose(last[row], expected, atol=1e-4)
            np.testing.assert_allclose(outcome.numbers[row, 0], reward, atol=1e-3)
        done = outcome.done
        assert done.tolist() == [(time + 1) % 30 == 0] * 4
        assert outcome.numbers[:, batch_env.TRUNCATED].tolist() == done.tolist()
        observation = last
    kept = batch.reset([2])
    assert kept.shape == (1, 3)
    np.testing.assert_array_equal(batch.reset(seeds=[5, 6, 7, 8]), first)
    with pytest.raises(ValueError, match="all environments"):
        batch.reset([1], [3])
    with pytest.raises(make.BackendError, match="no environment.*workers"):
        make.batch("NoSuch-v1", 2, "envpool")


def test_envpool_terminates_at_the_limit_of_episodes(create):
    """Episodes of constant actions have the same length with a limit that is longer."""
    pytest.importorskip("envpool")

    def flags(limit):
        batch = create("CartPole-v1", 4, "envpool", max_length=limit)
        batch.reset(seeds=[1, 2, 3, 4])
        found = []
        for _ in range(12):
            batch.start(np.ones(4, int), restart=True)
            numbers = batch.finish().numbers
            found.append(numbers[:, [batch_env.TERMINATED, batch_env.TRUNCATED]] > 0)
        return np.array(found)

    free = flags(500)
    ends = free[:, :, 0].argmax(0)
    assert free[ends, range(4), 0].all()
    assert not free[:, :, 1].any()
    limit = int(np.median(ends)) + 1
    limited = flags(limit)
    assert limited[limit - 1, ends == limit - 1].all()
    assert not limited[limit - 1, ends > limit - 1, 0].any()
    assert limited[limit - 1, ends > limit - 1, 1].all()
    assert (ends == limit - 1).any()


def test_unknown_environments_are_suggested():
    with pytest.raises(make.EnvironmentNotFound, match="did you mean CartPole-v1") as e:
        make.describe("CartPol-v1")
    assert "\n" not in str(e.value)
    with pytest.raises(make.EnvironmentNotFound, match="no module 'no_such_module'"):
        make.describe("no_such_module:function")
    with pytest.raises(ValueError, match="Unknown backend"):
        make.batch("CartPole-v1", 2, "threads")


def test_constructors_that_raise_show_their_traceback():
    def construct(size):
        raise KeyError(size)

    with pytest.raises(make.ConstructorError, match="raise KeyError"):
        make.describe(construct, kwargs={"size": 3})


def test_description_of_environments():
    cartpole = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert make.describe("CartPole-v1").max_length == 500
    assert make.describe("CartPole-v1", 900).max_length == 900
    assert make.describe("gymnasium.envs.classic_control:CartPole-v1").max_length == 500
    assert make.describe(cartpole).max_length is None
    found = make.describe(cartpole, 7)
    assert found.max_length == 7
    assert found.observation_space.shape == (4,)
    assert found.action_space == gymnasium.spaces.Discrete(2)


class Choices(mocks.MockEnvironment):
    """Mock whose info holds a mask, which forbids all actions at the given time."""

    def __init__(self, durations=(9,), nothing_at=None, action_mask=None):
        super().__init__((2,), durations=list(durations))
        self.action_space = gymnasium.spaces.Discrete(3)
        self._nothing_at = nothing_at
        assert action_mask is None  # Its own argument, which is not the reserved key.

    def reset(self, **kwargs):
        observation, _ = super().reset(**kwargs)
        return observation, self._info()

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, self._info()

    def _info(self):
        none = self.lengths[-1] == self._nothing_at
        return {"action_mask": np.zeros(3) if none else np.array([0, 1, 1])}


def masked(**kwargs):
    return {"kwargs": {**kwargs, make.ACTION_MASK: True}}


@pytest.mark.parametrize("backend", NAMES)
def test_masks_of_infos_are_observed(backend, create):
    batch = create(Choices, 3, backend, **masked(action_mask=None))
    assert make.describe(Choices, **masked()).observation_space == (
        batch.observation_space
    )
    for observation in (batch.reset(), batch.step(np.ones(3, int))[0]):
        assert observation["action_mask"].tolist() == [[0, 1, 1]] * 3
        assert observation["observation"].shape == (3, 2)


@pytest.mark.parametrize("backend", NAMES)
def test_masks_without_action_stop_the_run(backend, create):
    batch = create(Choices, 3, backend, **masked(nothing_at=2))
    batch.reset()
    batch.step(np.ones(3, int))
    with pytest.raises(
        batch_env.EnvDataError, match="row 0 after step 2 .* allows no action"
    ):
        batch.step(np.ones(3, int))


def test_masks_that_cannot_be_are_refused():
    for backend in ("vector", "envpool"):
        with pytest.raises(make.BackendError, match=f"{backend} cannot.*workers"):
            make.batch("CartPole-v1", 2, backend, **masked())
    with pytest.raises(make.BackendError, match="compiled cannot.*workers"):
        make.describe("CartPole-v1", backend="compiled", **masked())
    with pytest.raises(spaces.UnsupportedSpaceError, match="Discrete.*got Box"):
        make.describe("Pendulum-v1", **masked())


def test_limits_are_found_behind_masks():
    assert make.describe("CartPole-v1", **masked()).max_length == 500
    assert make.describe("CartPole-v1", 900, **masked()).max_length == 900
    assert make.describe(Choices, 7, **masked()).max_length == 7
