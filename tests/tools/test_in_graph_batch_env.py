"""Batches of environments in the graph."""

import time

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.testing import mocks
from agents.tools import batch_env, steps, transitions


class Recorder(mocks.MockEnvironment):
    """Remembers the seeds it was reset with."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return super().reset(seed=seed, options=options)


class Dictionary(gymnasium.Env):
    """Observes a dict of all kinds of leaves, filled with the number of steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "speed": gymnasium.spaces.Box(-np.inf, np.inf, (), np.float64),
            "camera": gymnasium.spaces.Box(0, 255, (2, 3, 1), np.uint8),
            "keys": gymnasium.spaces.Tuple(
                (
                    gymnasium.spaces.Discrete(9, start=1),
                    gymnasium.spaces.MultiDiscrete([10, 10]),
                )
            ),
        }
    )
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 1
        self.actions = []
        return self._observe(), {}

    def step(self, action):
        self.actions.append(action)
        self._time += 1
        return self._observe(), 0.5, False, False, {}

    def _observe(self):
        t = self._time
        return {
            "speed": np.float64(t),
            "camera": np.full((2, 3, 1), t, np.uint8),
            "keys": (t, np.array([t, t + 1])),
        }


def make(count=3, cls=mocks.MockEnvironment, **kwargs):
    envs = [cls(**kwargs) for _ in range(count)]
    return envs, tools.InGraphBatchEnv(tools.BatchEnv(envs, blocking=True))


def halves(count=4, cls=mocks.MockEnvironment, **kwargs):
    envs = [cls(**kwargs) for _ in range(count)]
    parts = envs[: count // 2], envs[count // 2 :]
    return envs, tools.InGraphBatchEnv(
        [tools.BatchEnv(x, True, y) for x, y in zip(parts, (0, 2), strict=True)]
    )


def column(observation):
    return observation.numpy()[:, 0].tolist()


def test_new_rows_begin_episodes():
    made, envs = make()
    assert len(envs) == 3
    assert envs.parts == 1
    assert envs.error is None
    assert [env.lengths for env in made] == [[]] * 3
    step = envs.begin()
    assert column(step.observation) == [0, 0, 0]
    assert step.first.numpy().tolist() == [True] * 3
    assert [env.lengths for env in made] == [[0]] * 3
    step = envs.begin()
    assert column(step.observation) == [1000, 1000, 1000]
    assert step.first.numpy().tolist() == [True] * 3


def test_stepping_before_the_beginning_raises():
    made, envs = make()
    step = steps.Before(tf.zeros([3, 2]), tf.zeros([3], tf.bool))
    with pytest.raises(RuntimeError, match=r"\[0, 1, 2\] are done"):
        envs.simulate(step, tf.zeros([3, 1]))


def test_after_and_next_step():
    made, envs = make(2, durations=(2, 3))
    step = envs.begin()
    after, step = envs.simulate(step, tf.zeros([2, 1]))
    assert column(after.observation) == column(step.observation) == [1, 1]
    assert after.reward.numpy().tolist() == [1, 1]
    assert after.record.numpy().tolist() == [[0, 0, 1, 1]] * 2
    assert step.first.numpy().tolist() == [False] * 2
    after, step = envs.simulate(step, tf.zeros([2, 1]))
    assert column(after.observation) == [2, 2]  # The true last one.
    assert after.terminated.numpy().tolist() == [True] * 2
    assert after.truncated.numpy().tolist() == [False] * 2
    assert after.record.numpy().tolist() == [[1, 0, 3, 2]] * 2
    assert column(step.observation) == [1000, 1000]
    assert step.first.numpy().tolist() == [True] * 2
    after, _ = envs.simulate(step, tf.zeros([2, 1]))
    assert after.record.numpy().tolist() == [[0, 0, 1, 1]] * 2  # A new score.


def test_truncation_is_no_termination():
    _, envs = make(1, durations=(1,), truncate=True)
    after, _ = envs.simulate(envs.begin(), tf.zeros([1, 1]))
    assert not after.terminated.numpy().any()
    assert after.truncated.numpy().all()
    assert after.done.numpy().all()


def test_only_rows_whose_episode_ends_are_restarted():
    made = [mocks.MockEnvironment(durations=(d,)) for d in (1, 3)]
    envs = tools.InGraphBatchEnv(tools.BatchEnv(made, blocking=True))
    after, step = envs.simulate(envs.begin(), tf.zeros([2, 1]))
    assert column(after.observation) == [1, 1]
    assert column(step.observation) == [1000, 1]
    assert step.first.numpy().tolist() == [True, False]
    assert [len(env.lengths) for env in made] == [2, 1]


def test_seeds_are_used_by_the_next_beginning_only():
    made, envs = make(3, Recorder)
    envs.discontinue(np.array([7, 0, 2**40]))
    envs.begin()
    envs.begin()
    assert [env.seeds for env in made] == [[7, None], [0, None], [2**40, None]]


def test_scores_begin_anew_after_discontinuing():
    _, envs = make(1, durations=(9,))
    _, step = envs.simulate(envs.begin(), tf.zeros([1, 1]))
    envs.simulate(step, tf.zeros([1, 1]))
    envs.discontinue()
    after, _ = envs.simulate(envs.begin(), tf.zeros([1, 1]))
    assert after.record.numpy().tolist() == [[0, 0, 1, 1]]


def test_structured_observations_keep_structure_shape_and_dtype():
    made, envs = make(2, Dictionary)
    action = tf.constant([-1, 1], tf.int64)
    for observation in (
        envs.begin().observation,
        *(x.observation for x in envs.simulate(envs.begin(), action)),
    ):
        time = int(observation["speed"][0])
        assert observation["speed"].dtype == tf.float32
        assert observation["speed"].numpy().tolist() == [time, time]
        assert observation["camera"].dtype == tf.uint8
        assert observation["camera"].shape == (2, 2, 3, 1)
        assert observation["camera"].numpy()[:, 0, 0, 0].tolist() == [time, time]
        number, pair = observation["keys"]
        assert number.dtype == pair.dtype == tf.int64
        assert number.numpy().tolist() == [time, time]
        assert pair.numpy().tolist() == [[time, time + 1]] * 2
    assert time == 2
    assert made[0].actions == [-1]


def test_observations_that_are_no_numbers_restart_by_row():
    class Images(mocks.MockEnvironment):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)

        def _observe(self):
            return np.full((2, 2), super()._observe()[0] // 10, np.uint8)

    made = [Images(durations=(d,)) for d in (1, 3)]
    envs = tools.InGraphBatchEnv(tools.BatchEnv(made, blocking=True))
    after, step = envs.simulate(envs.begin(), tf.zeros([2, 1]))
    assert after.observation.numpy()[:, 0, 0].tolist() == [0, 0]
    assert step.observation.numpy()[:, 0, 0].tolist() == [100, 0]


def test_shapes_are_known_while_tracing():
    _, envs = make(2, Dictionary)

    @tf.function(autograph=False)
    def run():
        step = envs.begin()
        after, following = envs.simulate(step, tf.zeros([2], tf.int64))
        expected = [[2, 2, 3, 1], [2], [2, 2], [2]]
        for observation in (x.observation for x in (step, after, following)):
            leaves = tf.nest.flatten(observation)
            assert [x.shape.as_list() for x in leaves] == expected
        flags = after.reward, after.terminated, after.done, following.first
        assert [x.shape.as_list() for x in flags] == [[2]] * 4
        assert after.record.shape == [2, 4]

    run()


def test_halves_take_turns():
    made, envs = halves(durations=(2,))
    assert envs.parts == 2
    assert len(envs) == 4
    step = envs.begin()
    assert column(step.observation) == [0] * 4
    first = tf.nest.map_structure(lambda x: x[:2], step)
    action = tf.zeros([2, 1])
    envs.simulate(first, action, start=0, finish=-1)
    assert envs.steps == 2
    for _ in range(2):
        after, first = envs.simulate(first, action, start=1, finish=0)
        other, second = envs.simulate(first, action, start=0, finish=1)
        np.testing.assert_array_equal(after.record, other.record)
        np.testing.assert_array_equal(first.observation, second.observation)
    assert column(after.observation) == [2, 2]
    assert column(first.observation) == [1000, 1000]
    envs.simulate(first, action, start=-1, finish=0)
    assert envs.steps == 10
    # The serial backend steps when it is waited for.
    assert [env.lengths for env in made] == [[2, 1], [2, 1], [2, 0], [2, 0]]


def test_errors_name_rows_of_the_whole_batch():
    made, envs = halves()
    with pytest.raises(ValueError, match="row 3"):
        envs.simulate(envs.begin(), tf.constant([[0.0], [1.5]]), start=1, finish=1)
    made[3].step = lambda action: (np.zeros(2), float("nan"), False, False, {})
    with pytest.raises(batch_env.EnvDataError, match="row 3.*reward"):
        envs.simulate(envs.begin(), tf.zeros([2, 1]), start=1, finish=1)


def test_parts_must_be_equal():
    one, two = (tools.BatchEnv([mocks.MockEnvironment()] * n, True) for n in (1, 2))
    for parts in ([one, two], [one, one, one], []):
        with pytest.raises(ValueError, match="equal"):
            tools.InGraphBatchEnv(parts)


def test_error_is_the_original_one_until_the_next_success():
    class Broken(mocks.MockEnvironment):
        broken = True

        def step(self, action):
            if self.broken:
                raise KeyError("broken")
            return super().step(action)

    made, envs = make(1, Broken)
    first = envs.begin()
    step = tf.function(lambda: envs.simulate(first, tf.zeros([1, 1])))
    with pytest.raises(tf.errors.OpError):
        step()
    assert type(envs.error) is KeyError
    made[0].broken = False
    step()
    assert envs.error is None


def test_tells_since_when_the_environments_are_called():
    seen = []

    class Watched(mocks.MockEnvironment):
        def step(self, action):
            seen.append(envs.called)
            return super().step(action)

    _, envs = make(1, Watched)
    first = envs.begin()
    assert envs.called is None
    start = time.monotonic()
    envs.simulate(first, tf.zeros([1, 1]))
    assert start <= seen[0] <= time.monotonic()
    assert envs.called is None


@pytest.mark.parametrize("bad", ["shape", "dtype", "finite"])
def test_observations_that_do_not_fit_the_space_are_refused(bad):
    class Wrong(mocks.MockEnvironment):
        def step(self, action):
            observation, *rest = super().step(action)
            wrong = {
                "shape": np.zeros(3, np.float32),
                "dtype": np.array(["a", "b"]),
                "finite": np.array([0, np.inf], np.float32),
            }
            return wrong[bad], *rest

    _, envs = make(1, Wrong)
    with pytest.raises(batch_env.EnvDataError, match="row 0.*observation"):
        envs.simulate(envs.begin(), tf.zeros([1, 1]))


def test_actions_outside_of_the_space_are_refused():
    _, envs = make(2)
    with pytest.raises(ValueError, match="row 1"):
        envs.simulate(envs.begin(), tf.constant([[0.0], [1.5]]))


def test_close_closes_the_batch():
    class Closable(mocks.MockEnvironment):
        closed = False

        def close(self):
            self.closed = True

    made, envs = make(2, Closable)
    envs.close()
    assert [env.closed for env in made] == [True, True]


def test_spaces_are_those_of_one_environment():
    made, envs = make(2, Dictionary)
    assert envs.observation_space == made[0].observation_space
    assert envs.action_space == made[0].action_space


def test_scores_of_long_episodes_do_not_drift():
    env = batch_env.BatchEnv([mocks.MockEnvironment()], blocking=True)
    env = tools.InGraphBatchEnv(env)
    numbers = np.zeros([1, env._columns.width], np.float32)
    numbers[:, transitions.REWARD] = 0.1
    step = batch_env.Results(numbers, [], [], np.zeros(1, bool), True, {})
    for _ in range(100_000):
        env._account(0, step)
    found = numbers[0, transitions.SUMS]
    np.testing.assert_allclose(found, [10_000, 100_000], rtol=1e-6)


def test_halves_begin_with_the_seeds_of_their_own_rows():
    envs = [Recorder(durations=[9]) for _ in range(4)]
    halves = [tools.BatchEnv(x, blocking=True) for x in (envs[:2], envs[2:])]
    both = tools.InGraphBatchEnv(halves)
    both.discontinue(np.array([5, 6, 7, 8]))
    both.begin()
    assert [env.seeds for env in envs] == [[5], [6], [7], [8]]
