"""A batch of environments in variables of the graph."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.tools import batch_env, mocks


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


def rows(*indices):
    return tf.constant(indices, tf.int32)


def state(envs):
    variables = {
        name: getattr(envs, name)
        for name in ("reward", "terminated", "truncated", "score", "length")
    }
    values = {name: variable.numpy().tolist() for name, variable in variables.items()}
    values["observation"] = envs.observation.numpy()[:, 0].tolist()
    return values


def test_everything_is_done_before_the_first_reset():
    _, envs = make()
    assert len(envs) == 3
    assert envs.done.numpy().tolist() == [True] * 3
    assert envs.error is None


def test_stepping_rows_that_are_not_reset_raises():
    _, envs = make()
    envs.reset(rows(0, 2))
    with pytest.raises(RuntimeError, match=r"\[1\] are done"):
        envs.simulate(tf.zeros([3, 1]))


def test_variables_after_reset_and_steps():
    _, envs = make(2, durations=(2, 3))
    envs.reset(rows(0, 1))
    assert state(envs) == {
        "observation": [0, 0],
        "reward": [0, 0],
        "terminated": [False, False],
        "truncated": [False, False],
        "score": [0, 0],
        "length": [0, 0],
    }
    envs.simulate(tf.zeros([2, 1]))
    envs.simulate(tf.zeros([2, 1]))
    assert state(envs) == {
        "observation": [2, 2],
        "reward": [2, 2],
        "terminated": [True, True],
        "truncated": [False, False],
        "score": [3, 3],
        "length": [2, 2],
    }


def test_reset_changes_only_the_rows_it_names():
    made, envs = make(3, durations=(2, 3))
    envs.reset(rows(0, 1, 2))
    for _ in range(2):
        envs.simulate(tf.zeros([3, 1]))
    envs.reset(rows(1))
    assert state(envs) == {
        "observation": [2, 1000, 2],
        "reward": [2, 0, 2],
        "terminated": [True, False, True],
        "truncated": [False, False, False],
        "score": [3, 0, 3],
        "length": [2, 0, 2],
    }
    assert [len(env.lengths) for env in made] == [1, 2, 1]


def test_reset_of_rows_in_another_order():
    made, envs = make(3)
    envs.reset(rows(2, 0, 1))
    envs.simulate(tf.zeros([3, 1]))
    envs.reset(rows(2))
    envs.reset(rows(1, 2))
    assert state(envs)["observation"] == [1, 1000, 2000]
    assert [len(env.lengths) for env in made] == [1, 2, 3]


def test_truncation_is_no_termination():
    _, envs = make(1, durations=(1,), truncate=True)
    envs.reset(rows(0))
    envs.simulate(tf.zeros([1, 1]))
    assert not envs.terminated.numpy().any()
    assert envs.truncated.numpy().all()
    assert envs.done.numpy().all()
    envs.reset(rows(0))
    assert not envs.truncated.numpy().any()
    assert not envs.done.numpy().any()


def test_seeds_are_used_by_the_next_reset_only():
    made, envs = make(3, Recorder)
    envs.discontinue(tf.constant([7, 0, 2**40], tf.int64))
    assert envs.done.numpy().all()
    envs.reset(rows(0, 1, 2))
    envs.reset(rows(1))
    envs.discontinue()
    envs.reset(rows(0, 1, 2))
    assert [env.seeds for env in made] == [
        [7, None],
        [0, None, None],
        [2**40, None],
    ]


def test_discontinued_rows_may_be_reset_in_parts():
    made, envs = make(3, Recorder)
    envs.discontinue(tf.constant([5, 6, 7], tf.int64))
    envs.reset(rows(1))
    assert envs.done.numpy().tolist() == [True, False, True]
    envs.reset(rows(2, 0))
    assert [env.seeds for env in made] == [[5], [6], [7]]


def test_structured_observations_keep_structure_shape_and_dtype():
    made, envs = make(2, Dictionary)
    envs.reset(rows(0, 1))
    envs.simulate(tf.constant([-1, 1], tf.int64))
    envs.reset(rows(1))
    observation = tf.nest.map_structure(lambda x: x.numpy(), envs.observation)
    assert observation["speed"].tolist() == [2, 1]
    assert observation["speed"].dtype == np.float32
    assert observation["camera"].dtype == np.uint8
    assert observation["camera"].shape == (2, 2, 3, 1)
    assert observation["camera"][:, 0, 0, 0].tolist() == [2, 1]
    number, pair = observation["keys"]
    assert number.dtype == pair.dtype == np.int64
    assert number.tolist() == [2, 1]
    assert pair.tolist() == [[2, 3], [1, 2]]
    assert made[0].actions == [-1]


def test_works_the_same_inside_of_a_graph_function():
    _, envs = make(2, durations=(3,))

    @tf.function(autograph=False)
    def run():
        everyone = tf.range(2)
        envs.reset(everyone)
        envs.simulate(tf.zeros([2, 1]))
        envs.simulate(tf.zeros([2, 1]))
        first = tf.convert_to_tensor(envs.observation)
        envs.simulate(tf.zeros([2, 1]))
        envs.reset(everyone)
        return first, tf.convert_to_tensor(envs.observation)

    first, second = run()
    assert first.shape == (2, 2)  # Known while tracing.
    assert first.numpy().tolist() == [[2, 2], [2, 2]]
    assert second.numpy().tolist() == [[1000, 1000], [1000, 1000]]


def test_shapes_are_known_while_tracing():
    _, envs = make(2, Dictionary)

    @tf.function(autograph=False)
    def run():
        envs.reset(tf.range(2))
        envs.simulate(tf.zeros([2], tf.int64))
        leaves = [*tf.nest.flatten(envs.observation), envs.reward, envs.done]
        shapes = [tf.convert_to_tensor(x).shape.as_list() for x in leaves]
        assert shapes == [[2, 2, 3, 1], [2], [2, 2], [2], [2], [2]]

    run()


def test_error_is_the_original_one_until_the_next_success():
    class Broken(mocks.MockEnvironment):
        broken = True

        def step(self, action):
            if self.broken:
                raise KeyError("broken")
            return super().step(action)

    made, envs = make(1, Broken)
    envs.reset(rows(0))
    step = tf.function(lambda: envs.simulate(tf.zeros([1, 1])))
    with pytest.raises(tf.errors.OpError):
        step()
    assert type(envs.error) is KeyError
    made[0].broken = False
    step()
    assert envs.error is None


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
    envs.reset(rows(0))
    with pytest.raises(batch_env.EnvDataError, match="row 0.*observation"):
        envs.simulate(tf.zeros([1, 1]))


def test_actions_outside_of_the_space_are_refused():
    _, envs = make(2)
    envs.reset(rows(0, 1))
    with pytest.raises(ValueError, match="row 1"):
        envs.simulate(tf.constant([[0.0], [1.5]]))


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


def test_nothing_of_it_is_trainable():
    _, envs = make(2)
    assert envs.variables
    assert not envs.trainable_variables
