"""Properties of all backends beyond the checks of `testing.check_batch_env`."""

import functools
import os
import signal

import gymnasium
import numpy as np
import pytest

from agents import testing
from agents.environments import Environment, make
from agents.environments.mujoco import task
from agents.testing import mocks
from agents.tools import batch_env, processes, transitions

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


TASKS = ("CartPole-v1", "Pendulum-v1", "HalfCheetah-v5")


@pytest.mark.quick(
    *(f"{backend}-HalfCheetah-v5" for backend in NAMES + VECTOR),
    "workers-CartPole-v1",
    *(f"mujoco-{name}" for name in task.GYMNASIUM),
)
@pytest.mark.parametrize(
    ("backend", "name"),
    [(backend, name) for backend in NAMES + VECTOR for name in TASKS]
    + [("mujoco", name) for name in task.GYMNASIUM],
)
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
        last, following = np.split(result.numbers[:, transitions.NUMBERS :], 2, 1)
        found.append((last[:, 0].tolist(), following[:, 0].tolist()))
    assert found == [
        ([1, 1001, 1], [1, 1001, 1]),
        ([2, 1002, 2], [1000, 1002, 1000]),
        ([1001, 1003, 1001], [1001, 1003, 1001]),
    ]
    assert batch.step(np.zeros((3, 1)))[0][:, 0].tolist() == [1002, 1004, 1002]


@pytest.mark.parametrize("backend", NAMES)
def test_halves_step_independently(backend):
    workers, kwargs = 2 if backend == "workers" else None, {"durations": [3]}
    first, second = make.halves(
        Environment(mocks.MockEnvironment, backend, 6, workers, kwargs=kwargs)
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
                column = result.numbers[:, transitions.NUMBERS]
                episode, step = divmod(time - 1, 3)
                assert column.tolist() == [1000 * episode + step + 1] * 3
                assert result.done.tolist() == [step == 2] * 3
        first.reset([1])
        first.start(actions, restart=False)
        assert second.step(actions)[0][:, 0].tolist() == [2002] * 3
        column = first.finish().numbers[:, transitions.NUMBERS]
        assert column.tolist() == [2002, 3001, 2002]
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("backend", ["process", "workers"])
def test_halves_that_break_name_rows_of_the_whole(backend):
    workers = 2 if backend == "workers" else None
    parts = make.halves(Environment(Mortal, backend, 4, workers))
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


@pytest.mark.parametrize("backend", NAMES)
def test_masks_of_infos_are_observed(backend, create):
    batch = create(Choices, 3, backend, action_mask=True, kwargs={"action_mask": None})
    assert make.describe(Environment(Choices, action_mask=True)).observation_space == (
        batch.observation_space
    )
    for observation in (batch.reset(), batch.step(np.ones(3, int))[0]):
        assert observation["action_mask"].tolist() == [[0, 1, 1]] * 3
        assert observation["observation"].shape == (3, 2)


@pytest.mark.parametrize("backend", NAMES)
def test_masks_without_action_stop_the_run(backend, create):
    batch = create(Choices, 3, backend, action_mask=True, kwargs={"nothing_at": 2})
    batch.reset()
    batch.step(np.ones(3, int))
    with pytest.raises(
        batch_env.EnvDataError, match="row 0 after step 2 .* allows no action"
    ):
        batch.step(np.ones(3, int))


def test_limits_are_found_behind_masks():
    assert make.describe(Environment("CartPole-v1", action_mask=True)).max_length == 500
    assert (
        make.describe(
            Environment("CartPole-v1", max_length=900, action_mask=True)
        ).max_length
        == 900
    )
    assert (
        make.describe(Environment(Choices, max_length=7, action_mask=True)).max_length
        == 7
    )
