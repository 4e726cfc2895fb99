"""Replay with goals that were achieved later, compared with a list of episodes."""

import numpy as np
import pytest
import tensorflow as tf

from agents.memories import hindsight
from agents.tools import checkpoint

NUMBER = tf.TensorSpec([], tf.float32)
GOAL = tf.TensorSpec([2], tf.float32)
OBSERVATION = {"achieved_goal": GOAL, "desired_goal": GOAL, "observation": NUMBER}
DESIRED = -1.0
"""Goal of the environment, which nothing achieves."""


def outcome(achieved, desired):
    """Distance, and whether the goal is achieved."""
    return -tf.abs(achieved - desired)[:, 0], tf.reduce_all(achieved == desired, 1)


def make(rows=1, capacity=20, share=1.0, **changes):
    arguments = {"selector": "uniform", "n_step": 1, "discount": 0.5, "stack": None}
    return hindsight.Hindsight(
        *(OBSERVATION, NUMBER, rows, capacity, *{**arguments, **changes}.values()),
        share=share,
        outcome=outcome,
    )


def observed(number):
    """Observations whose achieved goals tell the number."""
    number = np.float32(number)
    return {
        "achieved_goal": np.stack([number, -number], -1),
        "desired_goal": np.full([*number.shape, 2], DESIRED, np.float32),
        "observation": number,
    }


def step(replay, row, number, end=None):
    """Step from `number` to `number + 1`, with reward 7."""
    replay.append(
        tf.constant([row]),
        *(observed([number]), tf.constant([float(number)]), tf.constant([7.0])),
        *(tf.constant([end == x]) for x in ("terminated", "truncated")),
        observed([number + 1]),
    )


def drawn(replay, count=2000, seed=0, sample=None):
    items = (sample or replay.sample)(count, tf.constant([seed, 5]))
    return tf.nest.map_structure(lambda x: x.numpy(), items)


def goals(items):
    """Set of first numbers of goals, by number of the observation."""
    found = {}
    pairs = zip(items["observation"]["observation"], _goal(items), strict=True)
    for number, goal in pairs:
        found.setdefault(int(number), set()).add(int(goal))
    return found


def _goal(items):
    goal = items["observation"]["desired_goal"]
    np.testing.assert_array_equal(goal, items["next_observation"]["desired_goal"])
    return goal[:, 0]


def test_goals_are_achieved_later_in_the_episode_and_outcomes_follow():
    replay = make()
    for number, end in ((0, None), (1, None), (2, "truncated"), (10, "terminated")):
        step(replay, 0, number, end)
    items = drawn(replay)
    assert goals(items) == {0: {1, 2, 3}, 1: {2, 3}, 2: {3}, 10: {11}}
    reached = items["next_observation"]["observation"] == _goal(items)
    distance = np.abs(items["next_observation"]["observation"] - _goal(items))
    np.testing.assert_array_equal(items["reward"], -distance)
    np.testing.assert_array_equal(items["discount"], np.where(reached, 0, 0.5))
    np.testing.assert_array_equal(items["action"], items["observation"]["observation"])
    first = _goal(items)[items["observation"]["observation"] == 0]
    counts = np.bincount(first.astype(int))[1:]
    expected = len(first) / 3
    assert np.sum((counts - expected) ** 2 / expected) < 13.8  # Chi-squared, 0.1%.


def test_other_transitions_are_as_they_were():
    replay = make(share=0.25)
    for number, end in ((0, None), (1, "terminated")):
        step(replay, 0, number, end)
    items = drawn(replay, 4000)
    kept = _goal(items) == DESIRED
    assert 0.7 < kept.mean() < 0.8
    assert (items["reward"][kept] == 7).all()
    assert (items["reward"][~kept] <= 0).all()
    last = items["observation"]["observation"] == 1
    np.testing.assert_array_equal(items["discount"][kept], np.where(last, 0, 0.5)[kept])
    none = drawn(make_filled(share=0.0))
    assert (_goal(none) == DESIRED).all()


def make_filled(**options):
    replay = make(**options)
    for number in range(5):
        step(replay, 0, number)
    return replay


@pytest.mark.parametrize("seed", range(3))
def test_random_episodes_agree_with_a_list(seed):
    random = np.random.default_rng(seed)
    replay = make(rows=2, capacity=14)
    episodes, current, steps = {}, [0, 0], {}
    append, sample = (
        tf.function(x, autograph=False) for x in (replay.append, replay.sample)
    )
    for number in range(1, 150):  # Numbers never come again.
        row = int(random.integers(2))
        end = random.choice(["terminated", "truncated", "", "", "", "", ""])
        episodes[number] = (row, current[row])
        steps.setdefault((row, current[row]), []).append(number)
        append(
            tf.constant([row]),
            *(observed([number]), tf.constant([0.0]), tf.constant([7.0])),
            *(tf.constant([end == x]) for x in ("terminated", "truncated")),
            observed([number + 0.5]),
        )
        if end or random.random() < 0.05:
            current[row] += 1
            replay.begin(tf.constant([row]))  # Also episodes that did not end.
        items = drawn(replay, 200, number, sample)
        pairs = zip(items["observation"]["observation"], _goal(items), strict=True)
        for first, goal in pairs:
            episode = steps[episodes[int(first)]]
            later = {float(x) for x in episode if x > first} | {episode[-1] + 0.5}
            assert goal in later
    assert len(set(episodes.values())) > 20


def test_everything_is_saved(tmp_path):
    first, second = make_filled(), make()
    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(1, {"memory": first.persistent}, {})
    checkpoints.restore({"memory": second.persistent})
    for number in (5, 6):
        step(first, 0, number)
        step(second, 0, number)
    one, other = drawn(first), drawn(second)
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("changes", [{"n_step": 2}, {"stack": 2}])
def test_windows_and_stacks_are_refused(changes):
    with pytest.raises(
        ValueError, match="n_step 1 and observations without stack|stacks"
    ):
        make(**changes)
