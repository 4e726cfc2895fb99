"""Ape-X: the ladder of epsilons, and first priorities."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from replay_agents import ONLINE, TABLE, TARGET, Chain, Identity, make, table
from simulated import Endless, batch, eagerly

from agents import tools
from agents.algorithms import apex
from agents.environments import compiled, functional


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1, {}, [0.4]),
        (3, {}, [0.4, 0.4**4.5, 0.4**8]),
        (3, {"epsilon": 0.5, "epsilon_alpha": 1.0}, [0.5, 0.5**1.5, 0.25]),
        (2, {"ladder_size": 5, "ladder_offset": 2}, [0.4**4.5, 0.4**6.25]),
        (1, {"ladder_size": 1}, [0.4]),
    ],
)
def test_ladder_by_hand(count, options, expected):
    """RLgraph divided by N - 1, which is zero for one agent."""
    agent = make("apex", batch(*(Chain() for _ in range(count))), **options)
    np.testing.assert_allclose(agent.epsilon(count), expected, rtol=1e-12)


def test_every_agent_has_its_own_epsilon():
    """RLgraph drew one for all."""
    agent = make("apex", batch(*(Chain() for _ in range(3))), network=TABLE)
    advantages, *_ = agent.network.trainable_variables
    advantages.assign(ONLINE)
    states = tf.constant([0, 0, 0], tf.int64)  # Where action 1 is better.
    perform = tf.function(lambda: agent.perform(tf.range(3), states), autograph=False)
    share = 1 - np.mean([perform().numpy() for _ in range(600)], 0)
    assert 0.14 < share[0] < 0.26
    assert share[1] < 0.03
    assert share[2] < 0.01


@pytest.mark.parametrize("options", [{"ladder_size": 3}, {"ladder_offset": 1}])
def test_agents_that_are_not_on_the_ladder_are_refused(options):
    envs = batch(*(Chain() for _ in range(4)))
    with pytest.raises(ValueError, match="4 agents do not fit into ladder_size"):
        make("apex", envs, **options)
    config = apex.Config(**options).without_memory(4)
    assert (config.ladder_size, config.ladder_offset) == (None, 0)


@pytest.mark.parametrize("options", [{}, {"ladder_size": 9, "ladder_offset": 2}])
def test_parts_of_a_run_have_parts_of_its_ladder(options):
    config = apex.Config(**options)
    whole = make("apex", batch(*(Chain() for _ in range(6))), **options).epsilon(6)
    for first, rows in ((0, 2), (2, 4)):
        part = config.for_rows(first, rows, 6, 8)
        ladder = {"ladder_size": part.ladder_size, "ladder_offset": part.ladder_offset}
        agent = make("apex", batch(*(Chain() for _ in range(rows))), **ladder)
        expected = whole[first : first + rows]
        np.testing.assert_allclose(agent.epsilon(rows), expected, rtol=1e-12)


def remember(agent, states, actions, rewards, end):
    """Steps of row 0 through these states; the last one ends the episode."""
    agent.begin_episodes(tf.constant([0]))
    for i, (action, reward) in enumerate(zip(actions, rewards, strict=True)):
        last = i == len(actions) - 1
        agent._chosen.assign([[action]])
        agent.experience(
            tf.constant([0]),
            tf.constant(states[i : i + 1], tf.int64),
            tf.constant([action], tf.int64),
            tf.constant([reward]),
            tf.constant([last and end == "terminated"]),
            tf.constant([last and end == "truncated"]),
            tf.constant(states[i + 1 : i + 2], tf.int64),
        )


def priorities(agent):
    """Of all entries of the memory."""
    return agent.memory.persistent["selector"]["levels"][0].numpy().ravel()


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_first_priorities_by_hand(end):
    """Three steps, double, bootstrapping from the last observation if truncated."""
    agent = make(
        "apex",
        batch(Chain()),
        network=TABLE,
        dueling=False,
        discount=0.5,
        priority_alpha=0.6,
    )
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    remember(agent, [0, 1, 2, 1, 0], [1, 0, 1, 0], [1.0, 2.0, -4.0, 8.0], end)
    # Values of state 1, after three steps, and of state 0, after the last one, that
    # the target network has for the actions that the online network prefers.
    third, last = 30.0, 20.0 if end == "truncated" else 0.0
    targets = [
        1 + 2 / 2 - 4 / 4 + third / 8,
        2 - 4 / 2 + 8 / 4 + last / 8,
        -4 + 8 / 2 + last / 4,
        8 + last / 2,
    ]
    errors = np.abs(np.array(targets) - [2.0, 3.0, 5.0, 3.0])
    found = priorities(agent)
    np.testing.assert_allclose(found[:4], (errors + 1e-6) ** 0.6, rtol=1e-5)
    assert not found[4:].any()


@pytest.mark.quick("False")
@pytest.mark.parametrize("in_program", [False, True])
def test_first_priorities_are_those_of_the_learner(in_program):
    envs = batch(*(Identity(gs.MultiDiscrete([2, 3])) for _ in range(4)))
    if in_program:
        envs = compiled.Compiled(functional.CartPole(), 4)
    agent = make(
        "apex",
        envs,
        discount=0.9,
        priority_alpha=1.0,
        replay_ratio=0.0,
    )
    for variable in agent.target_network.trainable_variables:
        variable.assign(variable + 0.1)
    tools.simulate(envs, agent, 45)
    slots = np.flatnonzero(found := priorities(agent))
    assert len(slots) == int(agent.memory.size) >= 4 * 38
    rows, entries = np.divmod(slots, agent.memory._length)
    index = tf.constant(entries * 4 + rows, tf.int64)
    data = agent.prepare(agent.memory.get(index))
    _, errors = agent.learn({**data, "weight": tf.ones_like(data["reward"])})
    np.testing.assert_allclose(found[slots], errors, atol=2e-6, rtol=1e-5)
    assert np.unique(np.round(found[slots], 4)).size > 100


class Pays(Endless):
    """Pays a number at every step; episodes end after 8."""

    def __init__(self, amount):
        super().__init__(truncate=False, discrete=True)
        self._amount = amount

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self._amount * reward, *rest


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 8 * (7 + 8) / 2),
        ({"ladder_size": 16, "ladder_offset": 8}, 8 * (5 + 6 + 7 + 8) / 4),
        ({"ladder_size": 10, "ladder_offset": 1}, 8 * (7 + 8) / 2),
        ({"ladder_size": 16}, None),
    ],
)
def test_score_of_the_greedy_end_of_the_ladder(options, expected):
    """Raw returns of whole episodes of the last quarter."""
    envs = batch(*(Pays(amount) for amount in range(1, 9)))
    agent = make("apex", envs, reward_clip=0.5, replay_ratio=0.0, **options)
    eagerly(envs, agent, 5)
    assert agent.metrics.result() == {}
    eagerly(envs, agent, 20, reset=True)
    assert agent.metrics.result().get("greedy_score") == expected
