"""Wrappers."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agents.testing import mocks
from agents.tools import checks, wrappers
from agents.tools.spaces import UnsupportedSpaceError


def test_random_start_is_a_function_of_the_seed():
    env = wrappers.RandomStart(mocks.MockEnvironment(durations=[100]), 10)
    times = [int(env.reset(seed=seed)[0][0]) % 1000 for seed in range(100)]
    assert set(times) == set(range(10))
    assert times == [int(env.reset(seed=seed)[0][0]) % 1000 for seed in range(100)]


def test_random_starts_that_share_a_space_do_not_depend_on_each_other():
    class Sum(gymnasium.Env):
        observation_space = spaces.Discrete(100_000)
        action_space = spaces.Discrete(1000)

        def reset(self, *, seed=None, options=None):
            self.sum = 0
            return self.sum, {}

        def step(self, action):
            self.sum += int(action)
            return self.sum, 0.0, False, False, {}

    def alone(seed):
        env = wrappers.RandomStart(Sum(), 9)
        return [env.reset(seed=seed)[0], env.reset()[0]]

    envs = [wrappers.RandomStart(Sum(), 9) for _ in range(2)]
    first = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    second = [env.reset()[0] for env in envs]
    assert [list(x) for x in zip(first, second, strict=True)] == [alone(0), alone(1)]


def test_random_start_does_not_return_final_observations():
    env = wrappers.RandomStart(mocks.MockEnvironment(durations=[2]), 10)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert int(observation[0]) % 1000 < 2
    with pytest.raises(ValueError, match="max_steps"):
        wrappers.RandomStart(mocks.MockEnvironment(), 0)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(
    "action_space",
    [spaces.Discrete(4, start=2), spaces.MultiDiscrete([2, 3], start=[1, 0])],
    ids=str,
)
def test_random_start_obeys_masks(action_space, observed):
    random = np.random.default_rng(0)
    chosen = []

    class Masked(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (1,))

        def __init__(self):
            self.action_space = action_space

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), self._info()

        def step(self, action):
            assert self.action_space.contains(action)
            hash(action if action_space.shape == () else tuple(action))
            chosen.append((self.mask, action - action_space.start))
            return np.zeros(1, np.float32), 0.0, False, False, self._info()

        def _info(self):
            if action_space.shape:
                self.mask = tuple(np.eye(n)[random.integers(n)] for n in (2, 3))
            else:
                self.mask = np.eye(4)[random.integers(4)]
            return {"action_mask": self.mask}

    env = wrappers.ActionMask(Masked()) if observed else Masked()
    wrappers.RandomStart(env, 100).reset(seed=1)
    assert len(chosen) > 10
    for mask, action in chosen:
        if action_space.shape:
            assert all(part[x] for part, x in zip(mask, action, strict=True))
        else:
            assert mask[action]


def test_frame_delta():
    env = wrappers.FrameDelta(mocks.MockEnvironment(durations=[5]))
    for episode in (0, 1):
        observations = [env.reset()[0]]
        observations += [env.step(np.zeros(1))[0] for _ in range(3)]
        expected = [[1000 * episode] * 2, [1, 1], [1, 1], [1, 1]]
        np.testing.assert_array_equal(observations, expected)


def test_frame_delta_of_bytes_is_signed():
    class Bytes(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (1,), np.uint8)
        action_space = spaces.Discrete(2)
        values = iter([200, 100])

        def reset(self, *, seed=None, options=None):
            return np.array([next(self.values)], np.uint8), {}

        def step(self, action):
            return np.array([next(self.values)], np.uint8), 0.0, False, False, {}

    env = wrappers.FrameDelta(Bytes())
    first, second = env.reset()[0], env.step(0)[0]
    assert (first.item(), second.item()) == (200, -100)
    assert env.observation_space.contains(first)
    assert env.observation_space.contains(second)


@pytest.mark.parametrize(("flatten", "shape"), [(False, (3, 2)), (True, (6,))])
def test_frame_history(flatten, shape):
    env = wrappers.FrameHistory(
        mocks.MockEnvironment(durations=[9]), [0, 1, 3], flatten
    )
    assert env.observation_space.shape == shape
    for episode in (0, 1000):
        observations = [env.reset()[0]]
        observations += [env.step(np.zeros(1))[0] for _ in range(5)]
        expected = [[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 0], [4, 3, 1], [5, 4, 2]]
        for actual, frames in zip(observations, expected, strict=True):
            frames = np.repeat(np.array(frames) + episode, 2)
            np.testing.assert_array_equal(actual, frames.reshape(shape))


def test_frame_history_has_the_dtype_of_its_space():
    class Whole(mocks.MockEnvironment):
        def reset(self, **kwargs):
            super().reset(**kwargs)
            return np.array([0, 0]), {}

        def step(self, action):
            return np.array([0.6, 0.5], np.float32), *super().step(action)[1:]

    env = wrappers.FrameHistory(Whole(), [0, 1])
    assert env.reset()[0].dtype == np.float32
    assert env.step(np.zeros(1))[0].tolist() == [[np.float32(0.6), 0.5], [0.0, 0.0]]


@pytest.mark.parametrize("indices", [[1, 2], [0, -1], []])
def test_frame_history_needs_the_current_frame(indices):
    with pytest.raises(ValueError, match="offsets"):
        wrappers.FrameHistory(mocks.MockEnvironment(), indices)


class Ranges(gymnasium.Env):
    """Observes and rewards its action, within given bounds."""

    def __init__(self, low=(-2.0, 0.0), high=(2.0, 10.0)):
        low, high = np.array(low), np.array(high)
        self.observation_space = self.action_space = spaces.Box(
            low, high, dtype=np.float64
        )

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}

    def step(self, action):
        return action, 1.0, False, False, {"action": action}


def test_range_normalize_is_linear():
    env = wrappers.RangeNormalize(Ranges())
    unit = spaces.Box(-1, 1, (2,), np.float32)
    assert env.observation_space == unit
    assert env.action_space == unit
    np.testing.assert_array_equal(env.reset()[0], [-1, -1])
    for action, inner in [
        ([-1, 1], [-2, 10]),
        ([0, 0], [0, 5]),
        ([0.5, -0.5], [1, 2.5]),
    ]:
        observation, _, _, _, info = env.step(np.array(action, np.float32))
        np.testing.assert_array_equal(info["action"], inner)
        np.testing.assert_array_equal(observation, np.array(action, np.float32))
        assert observation.dtype == np.float32


def test_range_normalize_reaches_all_integers():
    inner = Ranges()
    inner.action_space = spaces.Box(-2, 2, (1,), np.int64)
    env = wrappers.RangeNormalize(inner, observation=False)
    env.reset()
    actions = np.linspace(-1, 1, 17, dtype=np.float32)
    found = [env.step(action[None])[0].item() for action in actions]
    expected = [-2] * 3 + [-1] * 3 + [0] * 5 + [1] * 3 + [2] * 3
    assert found == expected


def test_range_normalize_has_three_states():
    limited, unlimited = Ranges(), Ranges([-np.inf, 0], [np.inf, 1])
    assert wrappers.RangeNormalize(unlimited).action_space == unlimited.action_space
    same = wrappers.RangeNormalize(limited, False, False)
    assert same.observation_space == limited.observation_space
    assert same.reset()[0].tolist() == [-2, 0]
    with pytest.raises(ValueError, match="not finite"):
        wrappers.RangeNormalize(unlimited, observation=True)
    with pytest.raises(ValueError, match="not finite"):
        wrappers.RangeNormalize(gymnasium.make("CartPole-v1"), action=True)
    largest = float(np.finfo(np.float32).max)
    huge = Ranges([-largest, 0], [largest, 1])
    assert wrappers.RangeNormalize(huge).action_space == huge.action_space


def test_convert_to_32_bit():
    env = wrappers.ConvertTo32Bit(Ranges())
    assert env.observation_space.dtype == np.float32
    assert env.reset()[0].dtype == np.float32
    observation, reward, *_ = env.step(np.array([1.0, 2.0]))
    assert observation.dtype == np.float32
    assert reward.dtype == np.float32
    assert env.step({"x": (3, np.zeros(2, np.int64))})[0]["x"][1].dtype == np.int32
    for wrong in ([np.nan, 0.0], [0, np.inf], [0, 1e300]):
        with pytest.raises(ValueError, match="not finite"):
            env.step(np.array(wrong))


class Old:
    """Environment as of Gym 0.21."""

    class Discrete:
        n = 2

    class Box:
        low, high = np.zeros(1, np.float32), np.ones(1, np.float32)
        dtype = np.dtype(np.float32)

    def __init__(self, limited):
        self.action_space = self.Discrete()
        self.observation_space = self.Box()
        self.limited = limited
        self.seeds = []
        self.gain = 1.0

    def render(self, mode="human"):
        return np.ones((2, 2, 3), np.uint8) if mode == "rgb_array" else True

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        info = {"TimeLimit.truncated": True} if self.limited else {}
        return np.ones(1, np.float32), 1.0, action == 1, info


@pytest.mark.parametrize("limited", [False, True])
def test_old_gym(limited):
    old = Old(limited)
    env = wrappers.OldGym(old)
    assert env.observation_space == spaces.Box(0, 1, (1,))
    assert env.action_space == spaces.Discrete(2)
    observation, info = env.reset(seed=3)
    assert (observation.tolist(), info) == ([0], {})
    env.reset()
    assert old.seeds == [3]
    assert env.step(0)[2:4] == (False, False)
    assert env.step(1)[2:4] == (not limited, limited)
    env.close()


def test_old_gym_renders_in_the_mode_that_was_asked_for():
    assert wrappers.OldGym(Old(False)).render() is True
    assert wrappers.OldGym(Old(False), "rgb_array").render().shape == (2, 2, 3)
    new = wrappers.OldGym(gymnasium.make("CartPole-v1", render_mode="rgb_array"))
    new.reset()
    assert new.render().ndim == 3


def test_old_gym_is_seen_through():
    old = Old(False)
    assert wrappers.OldGym(old).unwrapped is old
    env = gymnasium.wrappers.TimeLimit(wrappers.OldGym(old), 5)
    assert env.unwrapped is old
    new = gymnasium.make("CartPole-v1")
    assert wrappers.OldGym(new).unwrapped is new.unwrapped


def test_new_environments_pass_through_old_gym():
    inner = gymnasium.make("CartPole-v1")
    env = wrappers.OldGym(inner)
    expected = gymnasium.make("CartPole-v1").reset(seed=5)[0]
    np.testing.assert_array_equal(env.reset(seed=5)[0], expected)
    assert len(env.step(0)) == 5
    assert env.observation_space is inner.observation_space


def test_wrappers_of_gym_pass_seeds_on():
    class Wrapper(Old):
        def reset(self, **kwargs):
            given.append(kwargs)
            return super().reset()

        seed = property()  # Gone from Gym 0.26, so there is no such attribute.

    given = []
    env = wrappers.OldGym(Wrapper(limited=False))
    env.reset(seed=3)
    env.reset(options={"easy": True})
    env.reset()
    assert given == [{"seed": 3}, {"options": {"easy": True}}, {}]


class Masked(gymnasium.Env):
    """Gives the infos that it is told to; episodes end by action 1."""

    def __init__(self, infos, action_space=None, observation_space=None):
        self.infos = iter(infos)
        self.action_space = action_space or spaces.Discrete(3, start=1)
        self.observation_space = observation_space or spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), next(self.infos)

    def step(self, action):
        done = bool(np.all(action == 1))
        return self.observation_space.sample(), 1.0, done, False, next(self.infos)


def test_action_mask_of_taxi():
    """Whose info tells which of its six actions have an effect."""
    name = next(x for x in ("Taxi-v4", "Taxi-v3") if x in gymnasium.registry)
    plain, env = gymnasium.make(name), wrappers.ActionMask(gymnasium.make(name))
    assert set(env.observation_space.spaces) == {"observation", "action_mask"}
    assert env.observation_space["observation"] == plain.observation_space
    random = np.random.default_rng(0)
    observation, info = plain.reset(seed=5)
    ours, _ = env.reset(seed=5)
    for _ in range(30):
        assert env.observation_space.contains(ours)
        assert ours["observation"] == observation
        np.testing.assert_array_equal(ours["action_mask"], info["action_mask"])
        action = int(random.choice(np.flatnonzero(ours["action_mask"])))
        observation, *rest, info = plain.step(action)
        ours, *others, _ = env.step(action)
        assert others == rest


def test_action_mask_joins_other_observations():
    inner = spaces.Dict(a=spaces.Discrete(3), b=spaces.MultiBinary(2))
    infos = [{"action_mask": mask} for mask in ([True, False, True], [0.0, 0.5, 0.0])]
    env = wrappers.ActionMask(Masked(infos, observation_space=inner))
    assert set(env.observation_space.spaces) == {"a", "b", "action_mask"}
    for observation, expected in (
        (env.reset()[0], [1, 0, 1]),
        (env.step(2)[0], [0, 1, 0]),
    ):
        assert env.observation_space.contains(observation)
        assert observation["action_mask"].dtype == np.int8
        assert observation["action_mask"].tolist() == expected


def test_action_mask_of_several_actions():
    parts = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    infos = [{"action_mask": parts}, {"action_mask": np.concatenate(parts)}]
    env = wrappers.ActionMask(Masked(infos, spaces.MultiDiscrete([2, 3])))
    assert env.reset()[0]["action_mask"].tolist() == [1, 0, 0, 1, 1]
    assert env.step(np.array([0, 1]))[0]["action_mask"].tolist() == [1, 0, 0, 1, 1]


def test_action_mask_may_lack_where_no_action_follows():
    env = wrappers.ActionMask(Masked([{"action_mask": np.ones(3)}, {}]))
    env.reset()
    assert env.step(1)[0]["action_mask"].tolist() == [1, 1, 1]


def test_action_mask_must_be_in_the_info_and_fit():
    with pytest.raises(checks.EnvDataError, match=r"Masked gives no .*has \['other'\]"):
        wrappers.ActionMask(Masked([{"other": 1}])).reset()
    env = wrappers.ActionMask(Masked([{"action_mask": np.ones(3)}, {}]))
    env.reset()
    with pytest.raises(checks.EnvDataError, match="Masked gives no"):
        env.step(2)
    for wrong, shape in ((np.ones(4), r"\[4\]"), (np.ones([1, 3]), r"\[1, 3\]")):
        env = wrappers.ActionMask(Masked([{"action_mask": wrong}]))
        with pytest.raises(checks.EnvDataError, match=shape + r".*expected \[3\]"):
            env.reset()


def test_action_mask_needs_choices_and_a_free_key():
    with pytest.raises(UnsupportedSpaceError, match="Discrete.*got Box"):
        wrappers.ActionMask(Masked([], spaces.Box(-1, 1, (2,))))
    taken = spaces.Dict(action_mask=spaces.MultiBinary(3))
    with pytest.raises(UnsupportedSpaceError, match="already"):
        wrappers.ActionMask(Masked([], observation_space=taken))


def test_numbers_beyond_32_bits_are_refused():
    class Large(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 2**62, (), np.int64)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.array(seed, np.int64), {}

    env = wrappers.ConvertTo32Bit(Large())
    assert env.observation_space == gymnasium.spaces.Box(0, 2**31 - 1, (), np.int32)
    assert env.reset(seed=5)[0] in env.observation_space
    with pytest.raises(ValueError, match="beyond 32 bits: 3000000000"):
        env.reset(seed=3_000_000_000)


def test_random_starts_do_not_depend_on_what_the_environment_draws():
    class Draws(gymnasium.Env):
        observation_space = spaces.Box(0, 100, (3,), int)
        action_space = spaces.Discrete(8)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.values = [int(self.np_random.integers(8)), 0, 0]
            return np.array(self.values), {}

        def step(self, action):
            self.values[1] += 1
            self.values[2] = int(action)
            return np.array(self.values), 0.0, False, False, {}

    env = wrappers.RandomStart(Draws(), 8)
    found = np.array([env.reset(seed=seed)[0] for seed in range(4000)])
    drawn, count, action = found[found[:, 1] > 0].T
    for one, other in ((drawn, count), (drawn, action), (count, action)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06
        assert 0.09 < (one == other).mean() < 0.16  # Equal by chance: 1/8.


def test_only_the_first_episode_of_a_random_start_gets_the_seed():
    seeds = []

    class Recorder(mocks.MockEnvironment):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    env = wrappers.RandomStart(Recorder(durations=[1]), 10)
    for seed in range(5):
        env.reset(seed=seed)
    assert [x for x in seeds if x is not None] == list(range(5))
    assert None in seeds


def test_random_starts_with_masks_are_a_function_of_the_seed():
    class Masked(gymnasium.Env):
        observation_space = spaces.Discrete(10_000)
        action_space = spaces.Discrete(1000)
        info = {"action_mask": np.ones(1000)}

        def reset(self, *, seed=None, options=None):
            self.sum = 0
            return self.sum, self.info

        def step(self, action):
            self.sum += int(action)
            return self.sum, 0.0, False, False, self.info

    env = wrappers.RandomStart(Masked(), 9)
    first, again = ([env.reset(seed=x)[0] for x in range(5)] for _ in range(2))
    assert first == again
    assert any(first)


def test_range_normalize_keeps_actions_in_their_space():
    class Remembering(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (1,))
        action_space = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))

        def step(self, action):
            self.action = action
            return np.zeros(1, np.float32), 0.0, False, False, {}

    env = Remembering()
    wrappers.RangeNormalize(env).step(np.float32([1.5, -3]))
    np.testing.assert_array_equal(env.action, [2, 0])
    assert env.action_space.contains(env.action)


def test_every_episode_of_a_random_start_gets_the_options():
    seen = []

    class Told(mocks.MockEnvironment):
        def reset(self, *, seed=None, options=None):
            seen.append(options)
            return super().reset(seed=seed, options=options)

    env = wrappers.RandomStart(Told(durations=[1]), 10)
    for seed in range(9):
        env.reset(seed=seed, options={"level": 3})
    assert seen == [{"level": 3}] * len(seen)
    assert len(seen) > 9
