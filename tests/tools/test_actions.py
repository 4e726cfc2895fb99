"""Actions on their way to environments: values as the space says, checked."""

import numpy as np
import pytest
from gymnasium import spaces
from scripted import make


def test_discrete_actions_become_python_integers():
    envs, batch = make()
    batch.reset()
    batch.step(np.array([2, 4], np.int32))
    assert [env.received for env in envs] == [[2], [4]]
    assert type(envs[0].received[0]) is int


def test_box_actions_have_the_dtype_of_the_space_and_are_the_environments_own():
    space = spaces.Box(-1, 1, (2,), np.float64)
    envs, batch = make(action_space=space)
    batch.reset()
    actions = np.full((2, 2), 0.25, np.float32)
    batch.step(actions)
    actions[:] = 0.5
    batch.step(actions)
    assert envs[1].received[0].dtype == np.float64
    assert envs[1].received[0].tolist() == [0.25, 0.25]


def test_nested_actions_reach_the_environment_as_the_space_says():
    space = spaces.Dict(
        b=spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]),
        a=spaces.MultiDiscrete([2, 3]),
    )
    envs, batch = make(action_space=space)
    batch.reset()
    binary = np.array([[0, 1], [1, 1]])
    batch.step({"a": np.array([[0, 1], [1, 2]]), "b": (np.array([0, 1]), binary)})
    (action,) = envs[1].received
    assert space.contains(action)
    assert action["a"].tolist() == [1, 2]
    assert action["b"][0] == 1


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3, start=2), [2, 5]),
        (spaces.Discrete(3, start=2), [2, 1]),
        (spaces.MultiDiscrete([2, 3]), [[0, 0], [0, 3]]),
        (spaces.MultiBinary(2), [[0, 0], [0, 2]]),
        (spaces.Box(-1, 1, (1,)), [[0.0], [1.01]]),
        (spaces.Box(-1, 1, (1,)), [[0.0], [np.nan]]),
        (spaces.Box(-np.inf, np.inf, (1,)), [[0.0], [np.inf]]),
        (spaces.Box(0, 255, (1,), np.uint8), [[0], [300]]),
    ],
)
def test_actions_outside_of_the_space_name_their_row(space, wrong):
    envs, batch = make(action_space=space)
    batch.reset()
    with pytest.raises(ValueError, match="row 1: action"):
        batch.step(np.array(wrong))
    assert not envs[0].received


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3), np.zeros((2, 1), int)),
        (spaces.Discrete(3), np.zeros(3, int)),
        (spaces.Discrete(3), np.zeros(2)),
        (spaces.Box(-1, 1, (1,)), np.zeros(2)),
        (spaces.Box(-1, 1, (1,)), np.zeros((2, 1), complex)),
    ],
)
def test_actions_of_wrong_shape_or_dtype_are_refused(space, wrong):
    _, batch = make(action_space=space)
    batch.reset()
    with pytest.raises(ValueError, match="Expected action to be"):
        batch.step(wrong)


def test_missing_action_leaf_is_named():
    _, batch = make(action_space=spaces.Dict(left=spaces.Discrete(2)))
    batch.reset()
    with pytest.raises(ValueError, match="action left is missing"):
        batch.step({"right": np.zeros(2, int)})


def test_rounding_errors_of_actions_are_moved_inside():
    envs, batch = make(action_space=spaces.Box(-1, 1, (1,)))
    batch.reset()
    batch.step(np.array([[1 + 5e-7], [-1 - 5e-7]]))
    assert envs[0].received[0] == 1
    assert envs[1].received[0] == -1
