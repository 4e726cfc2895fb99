"""Workers that act at the same time, and a learner that waits for all of them."""

import pytest

UNROLLS = ("train.eval_every=256", "environment.backend=serial")
EPISODES = (
    *UNROLLS,
    "algorithm.memory=episodes",
    "algorithm.update_every=7",
    "algorithm.unroll_length=128",
)


@pytest.mark.parametrize(
    "overrides", [EPISODES, pytest.param(UNROLLS, marks=pytest.mark.slow)]
)
def test_one_worker_is_a_local_run(execute, run_here, assert_same, overrides):
    executor = execute("debug", *overrides)
    ours = executor.run(768)
    local, theirs = run_here("debug", 768, *overrides)
    assert int(local.steps) == 768
    assert_same(executor.algorithm, local)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.phase, one.step) == (other.phase, other.step)
        metrics = dict(one.metrics)
        if one.phase == "train":
            assert metrics.pop("worker_restarts") == 0
        assert metrics == pytest.approx(other.metrics, rel=1e-4, abs=1e-5)
