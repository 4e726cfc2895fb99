"""Uniform selection of entries."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from agents import memories


def make(count):
    selector = memories.Uniform()
    selector.build(count)
    return selector


def ints(*values):
    return tf.constant(values, tf.int32)


def insert(selector, indices):
    selector.change(indices, ints())


def remove(selector, indices):
    selector.change(ints(), indices)


def members(selector, count=2000):
    """Every entry that is drawn, by drawing often."""
    indices, _ = selector.sample(count, ints(1, 2))
    return sorted(set(indices.numpy().tolist()))


def test_draws_are_members_and_nothing_else():
    selector = make(10)
    insert(selector, ints(3, 7, 1))
    assert selector.size.numpy() == 3
    assert members(selector) == [1, 3, 7]
    remove(selector, ints(3))
    assert members(selector) == [1, 7]
    insert(selector, ints(9, 3))
    remove(selector, ints(1, 9, 7))
    assert members(selector) == [3]
    assert selector.size.numpy() == 1


def test_what_is_no_member_or_no_entry_changes_nothing():
    selector = make(4)
    none = 4
    insert(selector, ints(none, 2, none, 0))
    assert members(selector) == [0, 2]
    remove(selector, ints(none, 1, 3, none))
    assert members(selector) == [0, 2]
    remove(selector, ints())
    insert(selector, ints())
    remove(selector, ints(none, 2, 1))
    assert members(selector) == [0]
    assert selector.size.numpy() == 1


def test_priorities_tell_members():
    selector = make(4)
    selector.change(ints(3, 4, 1), ints(), tf.constant([5.0, 6.0, 7.0], tf.float64))
    assert selector.priorities(tf.range(5)).numpy().tolist() == [0, 1, 0, 1, 0]
    remove(selector, ints(3))
    assert selector.priorities(ints(1, 3)).numpy().tolist() == [1, 0]


def test_all_can_leave_and_return():
    selector = make(5)
    for _ in range(3):
        insert(selector, tf.range(5))
        assert members(selector) == [0, 1, 2, 3, 4]
        remove(selector, ints(4, 0, 2, 1, 3))
        assert selector.size.numpy() == 0


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_random_changes_agree_with_a_set(mode):
    selector, count = make(30), 30
    change = selector.change
    if mode != "eager":
        compiled = mode == "xla" or None
        change = tf.function(change, autograph=False, jit_compile=compiled)
    generator, expected = np.random.default_rng(0), set()
    for _ in range(200):
        entries = generator.permutation(count)
        new = [count if x in expected else x for x in entries[:8]]
        new = [x if generator.random() < 0.7 else count for x in new]
        old = [x if generator.random() < 0.9 else count for x in entries[8:18]]
        change(ints(*new), ints(*old))
        expected = (expected | set(new) - {count}) - set(old)
        assert selector.size.numpy() == len(expected)
        if expected:
            assert set(members(selector, 1000)) == expected


def test_frequencies_are_equal():
    selector = make(100)
    insert(selector, tf.range(0, 100))
    remove(selector, tf.range(0, 100, 3))
    indices, probability = selector.sample(66_000, ints(5, 6))
    counts = np.bincount(indices.numpy(), minlength=100)
    assert (counts[::3] == 0).all()
    counts = np.delete(counts, np.arange(0, 100, 3))
    assert stats.chisquare(counts).pvalue > 1e-3
    np.testing.assert_array_equal(probability, np.full(66_000, 1 / 66))


def test_seeds_decide():
    selector = make(1000)
    insert(selector, tf.range(1000))
    first, again, other = (
        selector.sample(50, ints(*seed))[0].numpy() for seed in [(1, 2), (1, 2), (1, 3)]
    )
    assert (first == again).all()
    assert (first != other).any()


def test_errors_do_not_matter():
    selector = make(3)
    insert(selector, ints(0, 1))
    selector.update(ints(0, 1), tf.constant([1.0, 100.0]))
    _, probability = selector.sample(4, ints(1, 2))
    assert probability.numpy().tolist() == [0.5] * 4
