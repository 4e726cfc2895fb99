"""Every preset for images trains on the real environment."""

import pytest
import tensorflow as tf

from agents import tools
from agents.experiments import named, runs

SMALL = ("environment.num_agents=2", "train.eval_episodes=0")
UNROLLS = ("algorithm.unroll_length=8",)
REPLAY = (
    "algorithm.capacity=500",
    "algorithm.start_size=32",
    "algorithm.batch_size=16",
    "algorithm.replay_ratio=0.5",
)


@pytest.mark.quick("ppo")
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("atari_pong", (*UNROLLS, "algorithm.minibatch_size=8")),
        ("atari_pong_impala", UNROLLS),
        ("atari_pong_dqn", REPLAY),
        ("atari_pong_apex", REPLAY),
        ("atari_pong_rainbow", REPLAY),
    ],
    ids=["ppo", "impala", "dqn", "apex", "rainbow"],
)
def test_trains_on_pong(name, overrides):
    config = named.load(name, [*SMALL, *overrides])
    env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    before = [tf.identity(x) for x in agent.acting()]
    tools.simulate(env, agent, 48)
    env.close()
    metrics = agent.metrics.result()
    assert tf.math.is_finite(metrics.get("loss", metrics.get("policy_loss")))
    pairs = zip(before, agent.acting(), strict=True)
    moved = [tf.reduce_any(x != y) for x, y in pairs if x.shape.rank == 4]
    layers = len(config.algorithm.network.convolutions)
    assert sum(map(bool, moved)) >= layers  # Those of a target network need not.
