"""Evaluation, sampled or not, changes nothing that a checkpoint holds."""

import numpy as np
import pytest
import simulated
import tensorflow as tf

from agents import agent as agent_
from agents import preprocessing, tools
from agents.experiments import config as experiment
from agents.experiments import evaluation
from agents.experiments import policy as policy_
from agents.testing import algorithms
from agents.tools import rows, sampling, sections

GRU = {"network": [8, {"type": "gru", "units": 4}], "chunk_length": 4}
UNROLLS = {"memory": "unrolls", "unroll_length": 8, "jit": False, "network": [8]}
REPLAY = {"capacity": 100, "start_size": 16, "batch_size": 8, "jit": False}
REPLAY |= {"network": [8], "normalize_observations": True, "replay_ratio": 0.25}
KINDS = {
    "ppo": {"type": "ppo", **UNROLLS, **GRU, "epochs": 1, "minibatch_size": 16},
    "vpg": {"type": "vpg", "update_every": 3, "jit": False, "network": [8]},
    "a2c": {"type": "a2c", **UNROLLS},
    "trpo": {"type": "trpo", **UNROLLS},
    "impala": {"type": "impala", "unroll_length": 8, "jit": False, "network": [8]},
    "dqn": {"type": "dqn", **REPLAY, "n_step": 3, "prioritized": True},
    "noisy": {"type": "dqn", **REPLAY, "noisy_std": 0.5},
    "apex": {"type": "apex", **REPLAY, "n_step": 2},
    "sac": {"type": "sac", **REPLAY, "n_step": 2},
    "td3": {"type": "td3", **REPLAY, "noise": "parameters"},
    "inertia": {"type": "td3", **REPLAY, "noise": "ornstein_uhlenbeck"},
}
BOXES = ("sac", "td3", "inertia")


def make(kind, envs):
    values = KINDS[kind]
    cls = preprocessing.subclass(
        experiment.algorithm_class(values["type"]),
        ["normalize", {"type": "sequence", "length": 2}],
    )
    settings = sections.build(experiment.algorithm_config(values["type"]), values)
    spaces = envs.observation_space, envs.action_space
    return cls(*spaces, len(envs), 8, settings)


@pytest.mark.quick("ppo", "impala", "sac")
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_changes_nothing_persistent(kind):
    discrete = kind not in BOXES
    envs = simulated.batch(*(simulated.Endless(True, discrete) for _ in range(2)))
    learner = make(kind, envs)
    spaces = envs.observation_space, envs.action_space
    seen = tf.constant([[0.5, -0.5]])
    state = learner.initial_state(1)
    with simulated.without_graphs():
        tools.simulate(envs, learner, 20)  # Ends within episodes.
        before, metrics = algorithms._values(learner), learner.metrics.result()
        assert int(learner.updates) > 0
        tools.simulate(envs, learner, 5, training=False)
        evaluation.play(envs, learner, 3, stochastic=False, seed=0)
        learner.decide(seen, state)
        policy = policy_.ExportablePolicy(learner, *spaces)
        inputs = [seen, *tf.nest.flatten(state)]
        inputs = dict(zip(policy.inputs, inputs, strict=True))
        policy.act(**inputs)
        generator = tf.random.Generator.from_seed(0)
        if learner.stochastic:
            evaluation.play(envs, learner, 3, stochastic=True, seed=0)
            learner.decide(seen, state, generator)
            policy.act(policy_.Stateless(tf.constant([1, 2])), **inputs)
        else:
            for sample in (
                lambda: evaluation.play(envs, learner, 3, stochastic=True, seed=0),
                lambda: learner.decide(seen, state, generator),
            ):
                with pytest.raises(ValueError, match="no probabilities to sample act"):
                    sample()
    after = algorithms._values(learner)
    assert before.keys() == after.keys()
    assert "preprocessing" in {name.partition("/")[0] for name in before}
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    assert learner.metrics.result() == metrics


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_sampled_actions_are_those_of_the_policy(kind):
    """With a state of each row, which begins where an episode does."""
    envs = simulated.batch(*(simulated.Endless(True, kind == "ppo") for _ in range(3)))
    learner = make(kind, envs)
    ours, theirs = (tf.random.Generator.from_seed(5) for _ in range(2))
    sampled = sampling.Sampling(learner, 3, ours)
    running = learner.running_state(tf.range(3))
    state, seen = learner.initial_state(3), np.random.default_rng(0)
    for step in range(6):
        observation = tf.constant(seen.uniform(-1, 1, (3, 2)), tf.float32)
        if step in (0, 4):  # Row 1 begins later than the others.
            sampled.begin_episodes(tf.constant([1] if step else [0, 1, 2]), False)
        if step == 4:
            new = tf.constant([False, True, False])
            state = rows.choose(new, learner.initial_state(3), state)
        action = sampled.perform(tf.range(3), observation, False)
        expected, state = learner.decide(observation, state, theirs)
        np.testing.assert_array_equal(action, expected)
    tf.nest.map_structure(
        np.testing.assert_array_equal, running, learner.running_state(tf.range(3))
    )


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("kind", ["a2c", "dqn"])
def test_best_actions_of_an_agent_change_nothing_persistent(kind):
    values = {"algorithm": KINDS[kind], "preprocessing": ["normalize"]}
    spaces = simulated.Endless.observation_space, simulated.Endless(True).action_space
    agent = agent_.Agent.create(values, *spaces, num_agents=2)
    seen = np.random.default_rng(0).uniform(-1, 1, (30, 2, 2))
    for step in range(20):
        agent.act(seen[step])
        agent.observe([1.0, 1.0], step % 7 == 6)
    agent.reset()
    before = algorithms._values(agent.algorithm)
    for step in range(20, 30):
        agent.act(seen[step], training=False)
        agent.act(seen[step], independent=True)
        agent.observe([1.0, 1.0], step % 4 == 3)
    after = algorithms._values(agent.algorithm)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
