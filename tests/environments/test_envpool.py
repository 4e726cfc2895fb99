"""EnvPool, against Gymnasium and its own limits."""

import gymnasium
import numpy as np
import pytest

from agents.environments import Environment, config, make
from agents.tools import transitions


def test_envpool_trajectories():
    """Against Gymnasium for what does not depend on random numbers."""
    pytest.importorskip("envpool")
    batch = make.batch(Environment("Pendulum-v1", "envpool", 4, max_length=30))
    description = make.describe(Environment("Pendulum-v1", "envpool", max_length=30))
    assert description.max_length == 30
    observation = following = first = batch.reset(seeds=[5, 6, 7, 8])
    plain = gymnasium.make("Pendulum-v1").unwrapped
    plain.reset()
    for time in range(65):
        if time % 30 == 0:
            observation = following
        actions = np.full((4, 1), np.sin(time), np.float32)
        batch.start(actions, restart=True)
        outcome = batch.finish()
        last, following = np.split(outcome.numbers[:, transitions.NUMBERS :], 2, 1)
        for row in range(4):
            x, y, speed = observation[row]
            plain.state = np.array([np.arctan2(y, x), speed], np.float64)
            expected, reward, *_ = plain.step(actions[row])
            np.testing.assert_allclose(last[row], expected, atol=1e-4)
            np.testing.assert_allclose(outcome.numbers[row, 0], reward, atol=1e-3)
        done = outcome.done
        assert done.tolist() == [(time + 1) % 30 == 0] * 4
        assert outcome.numbers[:, transitions.TRUNCATED].tolist() == done.tolist()
        observation = last
    kept = batch.reset([2])
    assert kept.shape == (1, 3)
    np.testing.assert_array_equal(batch.reset(seeds=[5, 6, 7, 8]), first)
    with pytest.raises(ValueError, match="all environments"):
        batch.reset([1], [3])
    with pytest.raises(config.BackendError, match="no environment.*workers"):
        make.batch(Environment("NoSuch-v1", "envpool", 2))


def test_envpool_terminates_at_the_limit_of_episodes(create):
    """Episodes of constant actions have the same length with a limit that is longer."""
    pytest.importorskip("envpool")

    def flags(limit):
        batch = create("CartPole-v1", 4, "envpool", max_length=limit)
        batch.reset(seeds=[1, 2, 3, 4])
        found = []
        for _ in range(12):
            batch.start(np.ones(4, int), restart=True)
            numbers = batch.finish().numbers
            found.append(numbers[:, transitions.FLAGS] > 0)
        return np.array(found)

    free = flags(500)
    ends = free[:, :, 0].argmax(0)
    assert free[ends, range(4), 0].all()
    assert not free[:, :, 1].any()
    limit = int(np.median(ends)) + 1
    limited = flags(limit)
    assert limited[limit - 1, ends == limit - 1].all()
    assert not limited[limit - 1, ends > limit - 1, 0].any()
    assert limited[limit - 1, ends > limit - 1, 1].all()
    assert (ends == limit - 1).any()


def test_envpool_is_not_told_what_the_batch_decides():
    pytest.importorskip("envpool")
    environment = Environment("CartPole-v1", "envpool", 4, kwargs={"batch_size": 2})
    with pytest.raises(config.BackendError, match="sets 'batch_size' itself"):
        make.batch(environment)


def test_envpool_is_random_without_seeds():
    pytest.importorskip("envpool")
    halves = make.halves(Environment("CartPole-v1", "envpool", 4))
    first, second = (half.reset() for half in halves)
    assert (first != second).all()
    assert (first[0] != first[1]).all()


def test_seeds_of_some_rows_are_refused_before_anything_changes(create):
    pytest.importorskip("envpool")
    batch = create("CartPole-v1", 2, "envpool")
    batch.reset(seeds=[1, 2])
    with pytest.raises(ValueError, match="all environments, not some"):
        batch.reset([0], seeds=[3])
    batch.step(np.zeros(2, int))
    assert len([*batch]) == 2


def test_envpool_without_a_limit(create):
    pytest.importorskip("envpool")
    batch = create("CliffWalking-v1", 2, "envpool")
    batch.reset(seeds=[1, 2])
    for _ in range(300):
        *_, terminated, truncated, _ = batch.step(np.zeros(2, int))
    assert not terminated.any()
    assert not truncated.any()
    assert make.describe(Environment("CliffWalking-v1", "envpool")).max_length is None


@pytest.mark.parametrize("name", ["seed", "num_threads", "max_episode_steps"])
def test_arguments_that_follow_from_the_description_are_refused(name):
    pytest.importorskip("envpool")
    with pytest.raises(ValueError, match=f"sets '{name}' itself|max_length' sets"):
        make.batch(Environment("CartPole-v1", "envpool", 2, kwargs={name: 3}))


def test_closed_pools_say_so():
    pytest.importorskip("envpool")
    batch = make.batch(Environment("CartPole-v1", "envpool", 2))
    batch.reset()
    batch.close()
    batch.close()
    for function in (lambda: batch.step(np.zeros(2, int)), batch.reset):
        with pytest.raises(RuntimeError, match="has been closed"):
            function()


def test_seeds_belong_to_the_rows_and_may_be_large(create):
    pytest.importorskip("envpool")
    batch = create("CartPole-v1", 3, "envpool")
    expected = batch.reset(seeds=[1, 5, 9])
    # Seeds begin anew at 2**31 - 1.
    found = batch.reset([2, 0, 1], seeds=[9, 2**31, 5])
    np.testing.assert_array_equal(found, expected[[2, 0, 1]])
    assert len(np.unique(expected[:, 0])) == 3
