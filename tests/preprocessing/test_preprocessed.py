"""Algorithms that see preprocessed observations, whatever functions they define."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import preprocessing
from agents.tools import algorithm

BOX = gymnasium.spaces.Box(-100, 100, (1,))
DOUBLE = [{"type": "sequence", "length": 2}, {"type": "clip", "low": -5, "high": 5}]


class Performing(algorithm.Algorithm):
    """Acts as it sees, and defines nothing but `perform`."""

    def __init__(self, observation_space, action_space, num_agents):
        super().__init__()
        self.shape = observation_space.shape
        self.calls = 0

    def perform(self, agent_indices, observation, training=True):
        self.calls += 1
        assert observation.shape[1:] == self.shape
        return tf.reshape(observation, [len(agent_indices), -1])


class Sampling(Performing):
    """One whose policy has probabilities, as it says."""

    stochastic = True


@pytest.mark.parametrize("cls", [Performing, Sampling])
def test_decide_of_what_only_performs_preprocesses_once(cls):
    generators = [None]
    if cls.stochastic:
        generators.append(tf.random.Generator.from_seed(0))
    for generator in generators:
        made = preprocessing.subclass(cls, DOUBLE)(BOX, BOX, 2)
        assert made.shape == (2,)
        state = made.initial_state(2)
        running = tf.nest.map_structure(np.array, made.running_state(tf.range(2)))
        for observation, expected in (
            ([[1.0], [9.0]], [[1, 1], [5, 5]]),
            ([[2.0], [-9.0]], [[1, 2], [5, -5]]),
        ):
            action, state = made.decide(tf.constant(observation), state, generator)
            np.testing.assert_array_equal(action, expected)
        assert made.calls == 2
        after = made.running_state(tf.range(2))
        tf.nest.map_structure(np.testing.assert_array_equal, running, after)


def test_what_only_performs_has_no_probabilities_unless_it_says_so():
    made = preprocessing.subclass(Performing, DOUBLE)(BOX, BOX, 2)
    generator = tf.random.Generator.from_seed(0)
    with pytest.raises(ValueError, match="no probabilities"):
        made.decide(tf.zeros([2, 1]), made.initial_state(2), generator)
