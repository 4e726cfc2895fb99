"""Vector environments of others: their autoreset modes, and those that break the rules."""

import functools

import gymnasium
import numpy as np
import pytest

from agents.environments import Environment, make, vector
from agents.testing import mocks
from agents.tools import batch_env, transitions


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
    batch = make.batch(Environment(Whole, "vector", 2, kwargs={"mode": "SameStep"}))
    batch.reset()
    found = []
    for _ in range(3):
        batch.start(np.zeros(2, np.int64), restart=True)
        numbers = batch.finish().numbers
        found.append(numbers[:, transitions.NUMBERS :].tolist())
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
    batch = make.batch(Environment(Whole, "vector", 2, kwargs=kwargs))

    def run():
        batch.reset()
        for _ in range(3):
            batch.start(np.zeros(2, np.int64), restart=True)
            batch.finish()

    with pytest.raises(batch_env.EnvDataError, match=text):
        run()


class One(gymnasium.Env):
    """Single environment whose vectorization is `Whole`."""

    observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **_):
        self._time = 0

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._time += 1
        return np.full(1, self._time, np.float32), 1.0, self._time == 4, False, {}


@pytest.fixture
def registered():
    """Id of `One`, which the functions below vectorize by `Whole`."""
    yield gymnasium.register("WholeForTest-v0", One, vector_entry_point=Whole)
    del gymnasium.registry["WholeForTest-v0"]


class Obeying(Whole):
    """Begins at a random number that unseeded resets draw one after the other."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._random = np.random.default_rng(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        new = self._random.uniform(0, 9, (self.num_envs, 1)).astype(np.float32)
        self._time = np.where(mask[:, None], new, getattr(self, "_time", new))
        return self._time, {}


@pytest.fixture
def registered_obeying():
    """Id of an environment that is vectorized by `Obeying`."""
    entries = {"entry_point": One, "vector_entry_point": Obeying}
    yield gymnasium.register("ObeyingForTest-v0", **entries)
    del gymnasium.registry["ObeyingForTest-v0"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("kwargs", "mode"),
    [
        ({"obeys": True}, "vector_entry_point"),
        ({"obeys": False}, "sync"),
        ({"obeys": False, "mode": "SameStep"}, "vector_entry_point"),
        ({"obeys": False, "vectorization_mode": "sync"}, "sync"),
    ],
)
def test_registered_environments_that_do_not_obey_masks_are_vectorized_in_turn(
    kwargs, mode, caplog
):
    caplog.set_level("INFO", "agents")
    environment = Environment("WholeForTest-v0", "vector", 3, kwargs=kwargs)
    batch = make.batch(environment)
    assert batch.besides[0] == (None, mode)
    substituted = mode == "sync" and "vectorization_mode" not in kwargs
    assert caplog.messages == substituted * [
        "The vector environment of WholeForTest-v0 does not obey reset_mask, so "
        "Gymnasium steps single ones in turn (vectorization_mode sync); backend workers "
        "uses all processors."
    ]


def test_cartpole_of_gymnasium_is_vectorized_with_masks(caplog):
    caplog.set_level("INFO", "agents")
    first, second = make.halves(Environment("CartPole-v1", "vector", 4))
    assert first.besides == [(500, "sync")] * 2
    assert len(caplog.messages) == 1
    for batch in (first, second):
        batch.reset(seeds=range(2))
        for _ in range(60):
            batch.start(np.array([0, 1]), restart=True)
            batch.finish()
    first.close()


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
        assert batch.finish().numbers[:, transitions.NUMBERS :].tolist() == [[3, 3]] * 2


@pytest.mark.parametrize("backend", ["vector-NextStep", "vector-SameStep"])
def test_rows_may_be_reset_after_a_step_that_restarted_others(create, backend):
    batch = create(mocks.MockEnvironment, 3, backend, kwargs={"durations": [3]})
    batch.reset()
    for _ in range(3):
        batch.start(np.zeros((3, 1)), restart=True)
        batch.finish()
    assert batch.reset([1])[:, 0].tolist() == [2000]
    batch.reset([1])
    observation = batch.step(np.zeros((3, 1)))[0]
    assert observation[:, 0].tolist() == [1001, 3001, 1001]


@pytest.mark.usefixtures("registered_obeying")
def test_vectorized_environments_are_random_without_seeds():
    environment = Environment("ObeyingForTest-v0", "vector", 4)
    halves, again = make.halves(environment), make.batch(environment)
    first = [batch.reset() for batch in (*halves, again)]
    assert len({one[0].tobytes() for one in first}) == 3
    for batch in (*halves, again):
        batch.close()


def test_vector_environments_are_truncated_in_time():
    batch = make.batch(
        Environment(Whole, "vector", 2, max_length=2, kwargs={"mode": "SameStep"})
    )
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


def test_atari():
    """Against a second batch, which is not disturbed."""
    pytest.importorskip("ale_py")
    kwargs = {"noop_max": 0, "use_fire_reset": False, "reward_clipping": False}
    batches = [
        make.batch(
            Environment("ALE/Breakout-v5", "auto", 3, max_length=40, kwargs=kwargs)
        )
        for _ in range(2)
    ]
    description = make.describe(
        Environment("ALE/Breakout-v5", max_length=40, kwargs=kwargs)
    )
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


class Counting(gymnasium.Env):
    """Episodes of three steps, whose observations are episode, step and last action."""

    observation_space = gymnasium.spaces.Box(-1, 99, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(10)

    def __init__(self, lost=None, **_):
        self._episode, self._lost = -1, lost

    def reset(self, *, seed=None, options=None):
        self._episode, self._step = self._episode + 1, 0
        return np.float32([self._episode, 0, -1]), {}

    def step(self, action):
        self._step += 1
        seen = np.float32([self._episode, self._step, action])
        seen[2] = np.nan if self._step == self._lost else seen[2]
        over = self._step == 3 and self._lost is None
        return seen, 1.0, over, False, {}


@pytest.mark.parametrize("shared", [True, False])
def test_every_action_reaches_the_processes_of_gymnasium(shared):
    """Without shared memory, their own resets would come one step too late."""

    def vectorized(num_envs):
        return gymnasium.vector.AsyncVectorEnv(
            [Counting] * num_envs, shared_memory=shared
        )

    batch = make.batch(Environment(vectorized, "vector", 2))
    batch.reset()
    for step in range(9):
        batch.start(np.array([step, step]), restart=True)
        numbers = batch.finish().numbers
        last = numbers[:, transitions.NUMBERS : transitions.NUMBERS + 3]
        assert last.tolist() == [[step // 3, step % 3 + 1, step]] * 2
    batch.close()


def test_numbers_that_are_missing_are_told_from_masks_that_are_not_obeyed():
    def vectorized(num_envs):
        makers = [lambda: Counting(3), lambda: Counting()]
        return gymnasium.vector.SyncVectorEnv(makers)

    batch = make.batch(Environment(vectorized, "vector", 2))
    batch.reset()

    def run():
        for _ in range(3):
            batch.start(np.zeros(2, np.int64), restart=True)
            batch.finish()

    with pytest.raises(batch_env.EnvDataError, match=r"row 0: observation.*not finite"):
        run()


@pytest.mark.parametrize("limit", [150, 250])
def test_limits_replace_those_of_ids(limit):
    batch = make.batch(Environment("Pendulum-v1", "vector", 2, max_length=limit))
    batch.reset()
    for step in range(1, limit + 1):
        batch.start(np.zeros([2, 1], np.float32), restart=True)
        assert batch.finish().done.tolist() == [step == limit] * 2
    batch.close()
