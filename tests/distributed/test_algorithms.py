"""Every algorithm and kind of environment acts on Ray, and the fast ones learn there."""

import math

import pytest

REPLAY = ("algorithm.start_size=256", "algorithm.capacity=5000")
IMAGES = ("environment.num_agents=4",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("pendulum_sac", REPLAY),
        ("pendulum_td3", REPLAY),
        ("cartpole_trpo", ()),
        ("cartpole_vpg", ()),
        ("cartpole_a2c", ()),
        ("cartpole_masked", ()),
        ("cartpole_compiled", ()),
        ("memory_impala", ()),
        ("cheetah_impala", ()),
        ("atari_pong", (*IMAGES, "algorithm.unroll_length=32")),
        ("atari_pong_impala", IMAGES),
        ("atari_pong_apex", (*IMAGES, *REPLAY)),
    ],
)
def test_trains(execute, name, overrides):
    settings = ("train.eval_episodes=0", "train.eval_every=2048")
    executor = execute(name, *settings, *overrides, num_workers=2)
    report = executor.run(2048)[-1]
    assert report.step >= 2048
    assert report.metrics["worker_restarts"] == 0
    losses = {key: x for key, x in report.metrics.items() if "loss" in key}
    assert losses
    assert all(math.isfinite(x) for x in losses.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("cartpole_impala", 150_000), ("cartpole_apex", 150_000)]
)
def test_learns(execute, name, steps):
    reports = execute(name, num_workers=2).run(steps)
    returns = [x.metrics["score"] for x in reports if x.phase == "evaluate"]
    assert max(returns) >= 475
