"""Preprocessing stages have the effect of equal environment wrappers."""

import gymnasium
import numpy as np
import pytest
import simulated
import tensorflow as tf

from agents import agent as agent_
from agents import preprocessing
from agents.algorithms import dqn, ppo, sac
from agents.experiments import config as experiment
from agents.experiments import runs
from agents.tools import sections, wrappers

SEQUENCE = [{"type": "sequence", "length": 3}]
GRU = [8, {"type": "gru", "units": 4}]
UNROLLS = {"memory": "unrolls", "unroll_length": 8, "chunk_length": 4, "epochs": 2}
REPLAY = {"capacity": 100, "start_size": 16, "batch_size": 8, "jit": False}
REPLAY |= {"replay_ratio": 0.25}
KINDS = {
    "ppo": (ppo, ppo.PPO, {**UNROLLS, "jit": False, "network": GRU}),
    "dqn": (dqn, dqn.DQN, {**REPLAY, "n_step": 2, "network": [8]}),
    "sac": (sac, sac.SAC, {**REPLAY, "network": [8]}),
}


def env(kind, history=False):
    made = simulated.Endless(truncate=True, discrete=kind != "sac")
    return wrappers.FrameHistory(made, [2, 1, 0], flatten=True) if history else made


def make(kind, declared, envs):
    module, cls, values = KINDS[kind]
    cls = preprocessing.subclass(cls, declared) if declared else cls
    settings = sections.build(module.Config, values)
    spaces = envs.observation_space, envs.action_space
    return cls(*spaces, len(envs), 8, settings)


@pytest.mark.quick("ppo")
@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_is_a_history_of_frames(kind):
    results = []
    for history in (False, True):
        envs = simulated.batch(*(env(kind, history) for _ in range(2)))
        agent = make(kind, [] if history else SEQUENCE, envs)
        simulated.eagerly(envs, agent, 16)
        actions = agent.perform(tf.range(2), tf.constant([*envs.begin()][0]), False)
        results.append(
            [agent.acting(), agent.memory.persistent, agent.metrics, actions]
        )
    ours, theirs = (simulated.numbers(x[0]) for x in results)
    assert len(ours) == len(theirs)
    assert simulated.same(ours, theirs)
    changed = make(kind, SEQUENCE, simulated.batch(env(kind), env(kind)))
    assert not simulated.same(ours, simulated.numbers(changed.acting()))


def test_statistics_change_in_training_only_and_are_saved():
    envs = simulated.batch(env("dqn"), env("dqn"))
    agent = make("dqn", ["normalize"], envs)
    initial = simulated.numbers(agent.preprocessing.variables)
    simulated.eagerly(envs, agent, 10, training=False)
    before = simulated.numbers(agent.preprocessing.variables)
    assert simulated.same(initial, before)
    simulated.eagerly(envs, agent, 10)
    after = simulated.numbers(agent.preprocessing.variables)
    assert not simulated.same(before, after)
    assert [x for x in after if x.shape == ()] == [20]
    assert simulated.same(after, simulated.numbers(agent.persistent()["preprocessing"]))


def test_an_agent_does_the_same_and_may_look_aside():
    cartpole = gymnasium.make("CartPole-v1")
    algorithm = {"type": "a2c", "unroll_length": 8, "jit": False}
    values = {
        "algorithm": {**algorithm, "network": [8]},
        "preprocessing": ["normalize", *SEQUENCE],
    }
    spaces = cartpole.observation_space, cartpole.action_space
    ours, theirs = (agent_.Agent.create(values, *spaces) for _ in range(2))
    generator = np.random.default_rng(0)
    for step in range(20):
        seen = generator.normal(size=4)
        if step % 3 == 0:
            ours.act(generator.normal(size=4), independent=True)
        assert ours.act(seen) == theirs.act(seen)
        for agent in (ours, theirs):
            agent.observe(1.0, step % 6 == 5)
    weights = (simulated.numbers(x.algorithm.acting()) for x in (ours, theirs))
    assert simulated.same(*weights)
    state = ours.algorithm.running_state([0]), theirs.algorithm.running_state([0])
    tf.nest.map_structure(np.testing.assert_array_equal, *state)


def test_a_config_has_preprocessing():
    values = {"name": "x", "environment": {"id": "CartPole-v1"}, "train": {}}
    values |= {"algorithm": {}, "preprocessing": SEQUENCE}
    made = experiment.resolve(values)
    assert made.preprocessing == SEQUENCE
    assert experiment.resolve(sections.to_dict(made)) == made
    description = runs.describe(made)
    agent = made.create_algorithm(description, 2)
    assert agent.preprocessing.space.shape == (12,)
    assert type(agent).__name__ == "PPO"


def test_statistics_are_part_of_what_acts():
    """So actors elsewhere get them, and checkpoints of a policy have them."""
    agent = make("dqn", ["normalize"], simulated.batch(env("dqn")))
    acting = {id(x) for x in agent.acting()}
    assert agent.preprocessing.kept
    assert all(id(x) in acting for x in agent.preprocessing.kept)


def test_frames_go_on_when_acting_without_training():
    envs = simulated.batch(env("dqn"), env("dqn"))
    agent = make("dqn", SEQUENCE, envs)
    rows, seen = tf.range(2), envs.begin().observation
    agent.begin_episodes(rows, False)
    for shift in (0.0, 1.0, 5.0):
        agent.perform(rows, seen + shift, False)
    (((frames, known),),), _ = state = agent.running_state(rows)
    np.testing.assert_allclose(frames, np.stack([seen + 1.0, seen + 5.0], 1))
    assert known.numpy().all()
    agent.begin_episodes(rows, False)
    agent.go_on(rows, state)
    np.testing.assert_array_equal(agent.running_state(rows)[0][0][0][0], frames)
