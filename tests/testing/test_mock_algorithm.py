"""The algorithm that records its calls for other tests."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents.testing import mock_algorithm
from agents.tools import spaces

NESTED = gs.Dict(
    {
        "b": gs.Box(-2.0, 5.0, (2,), np.float64),
        "a": gs.Tuple((gs.Discrete(3, start=-1), gs.MultiBinary(2))),
    }
)
everyone = tf.range(4)
observation = tf.ones([4, 2])


@pytest.mark.parametrize("space", [gs.Discrete(5, start=2), gs.Box(-1, 1, ()), NESTED])
def test_random_actions_lie_in_the_space_and_are_decided_by_the_seed(space):
    actions = []
    for seed in (0, 0, 1):
        agent = mock_algorithm.MockAlgorithm(space, seed=seed)
        perform = tf.function(agent.perform, autograph=False)
        action = perform(everyone, observation)
        for leaf, spec in zip(
            tf.nest.flatten(action), spaces.flatten(spaces.spec(space)), strict=True
        ):
            assert leaf.shape == (4, *spec.shape)
            assert leaf.dtype == spec.dtype
        rows = [
            tf.nest.map_structure(lambda x, row=row: x[row].numpy(), action)
            for row in range(4)
        ]
        assert all(space.contains(as_sample(space, row)) for row in rows)
        actions.append(np.concatenate([np.ravel(x) for x in tf.nest.flatten(action)]))
    assert (actions[0] == actions[1]).all()
    assert (actions[0] != actions[2]).any()


def as_sample(space, action):
    leaves = [
        np.asarray(leaf, space.dtype)
        for leaf, space in zip(
            spaces.flatten(action), spaces.flatten(space), strict=True
        )
    ]
    return spaces.unflatten(spaces.spec(space), leaves)


def test_one_action_for_all():
    agent = mock_algorithm.MockAlgorithm(gs.Discrete(5), action=3)
    assert agent.perform(everyone, observation).numpy().tolist() == [3] * 4
    action = {"b": np.array([0.5, 5.0]), "a": (-1, np.array([0, 1]))}
    agent = mock_algorithm.MockAlgorithm(NESTED, action=action)
    result = agent.perform(everyone, observation)
    assert result["b"].numpy().tolist() == [[0.5, 5.0]] * 4
    assert result["a"][0].numpy().tolist() == [-1] * 4


@pytest.mark.parametrize("graph", [False, True])
def test_calls_are_recorded_in_the_order_of_the_program(graph):
    agent = mock_algorithm.MockAlgorithm(gs.Discrete(5))

    def run(rows):
        agent.begin_episodes(rows)
        tf.cond(tf.size(rows) > 1, lambda: agent.end_episodes(rows), lambda: None)
        agent.begin_episodes(rows + 1)

    run = tf.function(run, autograph=False) if graph else run
    for rows in ([1, 2], [3]):
        run(tf.constant(rows))
    assert [(call.name, call.agent_indices) for call in agent.calls] == [
        ("begin_episodes", [1, 2]),
        ("end_episodes", [1, 2]),
        ("begin_episodes", [2, 3]),
        ("begin_episodes", [3]),
        ("begin_episodes", [4]),
    ]
    agent.clear()
    assert agent.calls == []


def test_arrays_are_copies():
    agent = mock_algorithm.MockAlgorithm(gs.Discrete(5))
    variable = tf.Variable([1.0, 2.0])
    agent.perform(tf.range(2), tf.convert_to_tensor(variable))
    variable.scatter_nd_update([[0]], [9.0])
    (call,) = agent.calls
    assert call.arrays["observation"].tolist() == [1, 2]
    assert call.training
