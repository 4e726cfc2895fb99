"""Batches of environments: results, indices, seeds, errors by row."""

import sys

import numpy as np
import pytest
from gymnasium import spaces
from scripted import Script, make

from agents.testing import mocks
from agents.tools import batch_env, checks, processes, transitions


def test_results_have_the_documented_shapes_and_dtypes():
    batch = batch_env.BatchEnv([mocks.MockEnvironment((2, 3))] * 1, blocking=True)
    assert len(batch) == 1
    assert batch.reset().shape == (1, 2, 3)
    observation, reward, terminated, truncated, info = batch.step(np.zeros((1, 1)))
    assert observation.dtype == np.float32
    assert reward.dtype == np.float32
    assert terminated.dtype == truncated.dtype == bool
    np.testing.assert_array_equal(reward, [1])
    assert info == {"rows": [{}]}


@pytest.mark.parametrize(
    "observation",
    [
        np.zeros(3, np.float32),
        np.zeros((1, 2), np.float32),
        np.zeros(2, complex),
        ["a", "b"],
        [[0.0], [0.0, 1.0]],
        {"x": 0},
        None,
    ],
)
def test_observations_that_do_not_fit_name_row_expected_and_got(observation):
    envs, batch = make()
    batch.reset()
    envs[1].observation = observation
    with pytest.raises(
        batch_env.EnvDataError, match=r"row 1: expected observation.*\[2\], got"
    ):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize(("value", "fits"), [(255, True), (256, False), (-1, False)])
def test_integers_must_fit_exactly(value, fits):
    space = spaces.Box(0, 255, (1,), np.uint8)
    envs, batch = make(space, observation=np.zeros(1, np.uint8))
    batch.reset()
    envs[0].observation = np.array([value])
    if fits:
        assert batch.step(np.array([2, 2]))[0].tolist() == [[value], [0]]
    else:
        with pytest.raises(batch_env.EnvDataError, match="row 0"):
            batch.step(np.array([2, 2]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_name_their_row(value):
    envs, batch = make()
    batch.reset()
    envs[1].observation = np.array([0, value], np.float32)
    with pytest.raises(batch_env.EnvDataError, match="row 1: observation .* finite"):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match="row 1: observation .* finite"):
        batch.reset([1])
    envs, batch = make()
    batch.reset()
    envs[1].reward = value
    with pytest.raises(batch_env.EnvDataError, match="row 1: reward .* finite"):
        batch.step(np.array([2, 2]))


def test_wrong_leaf_of_a_nested_observation_is_named():
    space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]))
    good = {"a": (1, np.zeros(2, np.float32))}
    envs, batch = make(space, observation=good)
    batch.reset()
    envs[1].observation = {"a": (1, np.zeros(1, np.float32))}
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected observation a/1"):
        batch.step(np.array([2, 2]))
    envs[1].observation = {"b": 0}
    with pytest.raises(batch_env.EnvDataError, match="observation a/0 is missing"):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize(
    "reward", [1, np.float64(1), np.array([1.0]), np.array(1), True]
)
def test_rewards_of_all_common_types_are_accepted(reward):
    envs, batch = make()
    envs[0].reward = reward
    batch.reset()
    np.testing.assert_array_equal(batch.step(np.array([2, 2]))[1], [1, 0])


@pytest.mark.parametrize("reward", [None, "1", np.zeros(2), {}])
def test_other_rewards_are_refused(reward):
    envs, batch = make()
    envs[0].reward = reward
    batch.reset()
    with pytest.raises(batch_env.EnvDataError, match="row 0: expected reward"):
        batch.step(np.array([2, 2]))


def test_old_interface_is_explained():
    envs, batch = make()
    envs[0].reset = lambda **kwargs: envs[0].observation
    with pytest.raises(batch_env.EnvDataError, match="row 0: reset must .*OldGym"):
        batch.reset()
    del envs[0].reset
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, False, {})
    with pytest.raises(batch_env.EnvDataError, match="row 1: step must .*OldGym"):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize("indices", [[0, 0], [2], [-1], [0.5], [[0]], [True]])
def test_wrong_indices_are_refused(indices):
    _, batch = make()
    with pytest.raises(ValueError, match="indices"):
        batch.reset(indices)


@pytest.mark.parametrize("seeds", [[1], [1, -1], [1, None], [0.5, 1]])
def test_wrong_seeds_are_refused(seeds):
    _, batch = make()
    with pytest.raises(ValueError, match="seeds"):
        batch.reset(seeds=seeds)


def test_no_indices_reset_nothing():
    _, batch = make()
    assert batch.reset([]).shape == (0, 2)
    with pytest.raises(RuntimeError, match="done"):
        batch.step(np.array([2, 2]))


def test_different_spaces_are_refused():
    box = spaces.Box(-1, 1, (2,))
    with pytest.raises(ValueError, match="observation space.*row 0.*row 1"):
        batch_env.BatchEnv([Script(box), Script(spaces.Box(0, 1, (2,)))], blocking=True)
    envs = [Script(box), Script(box, spaces.Discrete(7))]
    with pytest.raises(ValueError, match="action space.*row 0.*row 1"):
        batch_env.BatchEnv(envs, blocking=True)
    with pytest.raises(ValueError, match="at least one"):
        batch_env.BatchEnv([], blocking=True)


def test_errors_of_environments_name_the_row():
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: 1 // 0
    with pytest.raises(ZeroDivisionError) as caught:
        batch.step(np.array([2, 2]))
    assert "environment row 1" in caught.value.__notes__[0]


def test_exits_of_environments_are_errors():
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: sys.exit(4)
    with pytest.raises(processes.EnvError) as caught:
        batch.step(np.array([2, 2]))
    first, blank, *rest = str(caught.value).splitlines()
    assert first == "Environment row 1 raised SystemExit: 4; last command: step."
    assert not blank
    assert "sys.exit(4)" in "".join(rest)


def test_errors_of_wrappers_about_data_name_the_row():
    envs, batch = make()

    def reset(**_):
        raise checks.EnvDataError("no mask")

    envs[1].reset = reset
    with pytest.raises(batch_env.EnvDataError, match="^Environment row 1: no mask$"):
        batch.reset()


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [(spaces.Discrete(5), 4, 7), (spaces.MultiBinary(2), [1, 0], [0, 3])],
)
def test_discrete_observations_outside_of_their_space_are_errors(space, good, bad):
    envs, batch = make(space, observation=np.array(good))
    batch.reset()
    envs[1].observation = np.array(bad)
    text = rf"row 1: observation.* is {np.max(bad)}, outside of its space"
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.reset([1])


def test_boxes_that_are_left_are_warned_of_once(caplog):
    envs, batch = make()
    batch.reset()
    batch.step(np.array([2, 2]))
    assert not caplog.records
    envs[1].observation = np.array([0, 5], np.float32)
    for _ in range(3):
        observation, *_ = batch.step(np.array([2, 2]))
        batch.reset()
    assert observation.tolist() == [[0, 0], [0, 5]]
    (record,) = caplog.records
    assert "row 1: observation[1] is 5.0" in record.getMessage()
    envs[0].observation = np.array([0, np.inf], np.float32)
    with pytest.raises(batch_env.EnvDataError, match="row 0: .* not finite"):
        batch.step(np.array([2, 2]))


def test_observations_that_begin_an_episode_are_looked_at(caplog):
    envs, batch = make()
    batch.reset()
    inside, outside = envs[1].observation, np.array([0, 5], np.float32)
    envs[1].step = lambda action: (inside, 0.0, True, False, {})
    envs[1].observation = outside
    batch.start(np.array([2, 2]), restart=True)
    assert batch.finish().numbers[1, transitions.NUMBERS :].tolist() == [0, 0, 0, 5]
    assert "row 1" in caplog.text


def test_all_environments_are_closed_whatever_they_do(capsys):
    envs, batch = make(size=3)
    closed = []
    envs[0].close = lambda: 1 // 0
    envs[1].close = lambda: closed.append(1)
    batch.close()
    batch.close()
    assert closed == [1]
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1
