"""Prioritized selection of entries by a sum tree."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from agents import memories


def make(count, alpha=1.0, epsilon=1e-6):
    selector = memories.Prioritized(alpha, epsilon)
    selector.build(count)
    return selector


def ints(*values):
    return tf.constant(values, tf.int32)


def insert(selector, indices):
    selector.change(indices, ints())


def remove(selector, indices):
    selector.change(ints(), indices)


def update(selector, indices, errors):
    selector.update(ints(*indices), tf.constant(errors, tf.float32))


def priorities(selector, count):
    return selector.priorities(tf.range(count)).numpy()


def draw(selector, count, seed=(1, 2)):
    return [x.numpy() for x in selector.sample(count, ints(*seed))]


def test_priorities_are_absolute_errors_and_epsilon_to_the_power_of_alpha():
    selector = make(6, alpha=0.5, epsilon=0.25)
    insert(selector, ints(1, 2, 3, 4))
    update(selector, [1, 2, 3], [2.0, -3.75, 0.0])
    expected = [0, 1.5, 2.0, 0.5, 1.0, 0]
    np.testing.assert_allclose(priorities(selector, 6), expected, rtol=1e-12)
    assert selector.total.numpy() == 5.0
    assert selector.size.numpy() == 4


def test_priorities_too_small_for_numbers_do_not_end_memberships():
    selector = make(4, alpha=60.0)
    insert(selector, ints(0, 1, 2, 3))
    update(selector, [0, 1, 2], [0.0, 1e-9, 1.0])
    assert selector.size == 4
    assert (priorities(selector, 4) > 0).all()
    remove(selector, ints(0, 1, 2, 3))
    assert selector.size == 0


def test_new_entries_have_the_largest_priority_so_far_and_alpha_applies_once():
    selector = make(9, alpha=0.5, epsilon=1.0)
    insert(selector, ints(0))
    assert priorities(selector, 1)[0] == 1
    update(selector, [0], [15.0])
    insert(selector, ints(1))
    assert priorities(selector, 2).tolist() == [4, 4]
    update(selector, [0, 1], [3.0, 0.0])  # The largest was before.
    insert(selector, ints(2))
    assert priorities(selector, 3).tolist() == [2, 1, 4]
    update(selector, [2], [24.0])
    remove(selector, ints(2))
    insert(selector, ints(3))
    assert priorities(selector, 4).tolist() == [2, 1, 0, 5]


def test_new_entries_can_have_their_own_priority():
    none = 6
    selector = make(6, alpha=0.5)
    given = tf.constant([3.0, 7.0, 0.5], tf.float64)
    selector.change(ints(4, none, 1), ints(), given)
    assert priorities(selector, 7).tolist() == [0, 0.5, 0, 0, 3, 0, 0]
    insert(selector, ints(0))  # Those of no entry do not count.
    assert priorities(selector, 2).tolist() == [3, 0.5]
    selector.change(ints(2), ints(4, 5), tf.constant([1.0], tf.float64))
    assert priorities(selector, 6).tolist() == [3, 0.5, 1, 0, 0, 0]
    assert selector.total.numpy() == 4.5
    assert selector.size.numpy() == 3


def test_what_is_no_member_or_no_entry_changes_nothing():
    none = 5
    selector = make(5)
    insert(selector, ints(none, 2, none, 0))
    remove(selector, ints(none, 1, none, 3))
    update(selector, [none, 1, 4], [7.0, 7.0, 7.0])
    assert priorities(selector, 6).tolist() == [1, 0, 1, 0, 0, 0]
    assert selector.size.numpy() == 2
    insert(selector, ints(3))
    assert priorities(selector, 4)[3] == 1  # Nor has it become the largest.
    selector.change(ints(), ints())
    assert selector.total.numpy() == 3


@pytest.mark.parametrize("compiled", [None, True])
def test_of_duplicates_the_last_counts_and_sums_stay_right(compiled):
    selector = make(40, epsilon=0.5)
    insert(selector, tf.range(40))
    function = tf.function(selector.update, autograph=False, jit_compile=compiled)
    function(ints(7, 8, 7, 39, 7), tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert priorities(selector, 40)[[7, 8, 39]].tolist() == [5.5, 2.5, 4.5]
    assert selector.total.numpy() == 37 + 5.5 + 2.5 + 4.5


def test_every_part_of_the_total_gives_one_draw():
    selector = make(70, epsilon=1.0)
    insert(selector, ints(2, 31, 32, 69))
    update(selector, [2, 31, 32, 69], [0.0, 1.0, 4.0, 0.0])  # 1, 2, 5, 1.
    for seed in range(20):
        indices, probability = draw(selector, 9, (seed, 0))
        assert indices.tolist() == [2, 31, 31, *[32] * 5, 69]
        expected = np.array([1, 2, 2, *[5] * 5, 1]) / 9
        np.testing.assert_allclose(probability, expected, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_are_proportional_to_priorities(alpha):
    count = 300
    errors = np.random.default_rng(1).gamma(1.0, size=count).astype("f4")
    selector = make(count, alpha, 1e-3)
    insert(selector, tf.range(count))
    update(selector, range(count), errors)
    expected = (errors.astype("f8") + 1e-3) ** alpha
    expected /= expected.sum()
    draws = np.concatenate([draw(selector, 1, (seed, 9))[0] for seed in range(200)])
    assert len(set(draws)) > 50  # Of a single draw each, all over the place.
    indices, probability = draw(selector, 60_000)
    counts = np.bincount(indices, minlength=count)
    assert stats.chisquare(counts, expected * 60_000).pvalue > 1e-3
    np.testing.assert_allclose(probability, expected[indices], rtol=1e-9)


def test_single_draws_are_proportional_too():
    selector = make(20)
    insert(selector, tf.range(4))
    update(selector, range(4), [1.0, 2.0, 3.0, 4.0])
    sample = tf.function(lambda seed: selector.sample(1, seed)[0], autograph=False)
    draws = [int(sample(ints(seed, 3))[0]) for seed in range(3000)]
    counts = np.bincount(draws)
    assert stats.chisquare(counts, [300, 600, 900, 1200]).pvalue > 1e-3


@pytest.mark.parametrize("compiled", [None, True])
def test_nothing_without_priority_is_drawn(compiled):
    """Priorities of very different sizes, for which sums of parts are not exact."""
    count = 1000
    selector = make(count, epsilon=1e-12)
    generator = np.random.default_rng(2)
    sample = tf.function(
        lambda seed: selector.sample(256, seed), autograph=False, jit_compile=compiled
    )
    for trial in range(30):
        members = generator.permutation(count)[: generator.integers(1, 60)]
        remove(selector, tf.range(count))
        insert(selector, ints(*members))
        update(selector, members, 10.0 ** generator.uniform(-12, 12, len(members)))
        indices, probability = sample(ints(trial, trial))
        assert set(indices.numpy()) <= set(members.tolist())
        assert (probability.numpy() > 0).all()


def test_the_end_of_the_total_is_the_last_member():
    from agents.memories import prioritized

    children = np.zeros([3, 16])
    children[:, 3:6] = [0.1, 0.2, 0.3]
    total = children.sum(1)
    rest = np.array([total[0], 1.0, -1e-9])  # At and beyond the end, before the start.
    child, before = prioritized._descend(tf.constant(children), tf.constant(rest))
    assert child.numpy().tolist() == [5, 5, 3]
    np.testing.assert_allclose(before, [0.3, 0.3, 0], atol=1e-12)


def random_operations(count, operations):
    """Compare total and priorities with NumPy after changes of random entries."""
    selector = make(count, alpha=0.7, epsilon=1e-3)
    size, members, largest = 250, np.zeros(count + 1), 1.0
    change = tf.function(selector.change, autograph=False)
    correct = tf.function(selector.update, autograph=False)
    generator = np.random.default_rng(3)
    for step in range(operations // size):
        if step % 2:
            old, new = np.split(generator.permutation(count)[:size], [size // 2])
            new = np.where(members[new] > 0, count, new)
            change(tf.constant(new, tf.int32), tf.constant(old, tf.int32))
            members[new] = largest
            members[old] = 0
        else:
            indices = generator.integers(0, count, size)  # With duplicates.
            errors = (generator.normal(size=size) * 10).astype("f4")
            correct(tf.constant(indices, tf.int32), tf.constant(errors))
            changed = (np.abs(errors).astype("f8") + 1e-3) ** 0.7
            changed = np.where(members[indices] > 0, changed, 0)
            members[indices] = changed  # The last of duplicates, as NumPy does.
            largest = max(largest, changed.max())
        members[count] = 0
    np.testing.assert_allclose(priorities(selector, count), members[:-1], rtol=1e-9)
    np.testing.assert_allclose(selector.total, members.sum(), rtol=1e-12)
    assert selector.size.numpy() == np.count_nonzero(members)


def test_total_is_the_sum_of_leaves_after_100_000_operations():
    random_operations(3000, 100_000)


@pytest.mark.slow
def test_total_is_the_sum_of_leaves_after_1_000_000_operations():
    random_operations(100_000, 1_000_000)


def test_xla_draws_the_same():
    selector = make(5000)
    insert(selector, tf.range(5000))
    errors = np.random.default_rng(4).gamma(1.0, size=5000)
    update(selector, range(5000), errors)
    function = tf.function(
        lambda: selector.sample(512, ints(1, 2)), autograph=False, jit_compile=True
    )
    indices, probability = function()
    expected = draw(selector, 512)
    assert indices.numpy().tolist() == expected[0].tolist()
    np.testing.assert_allclose(probability, expected[1], rtol=1e-12)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 256, 257, 5000])
def test_any_number_of_entries(count):
    selector = make(count)
    insert(selector, tf.range(count))
    assert selector.total.numpy() == count
    assert draw(selector, count)[0].tolist() == list(range(count))
    variables = [*selector.persistent["levels"]]
    assert selector.num_bytes(count) == 12 + sum(8 * tf.size(x) for x in variables)


def test_errors_that_are_not_finite_raise():
    selector = make(3)
    insert(selector, tf.range(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="TD errors"):
        update(selector, [1], [np.nan])
    assert selector.total.numpy() == 3


@pytest.mark.parametrize(("alpha", "epsilon"), [(-0.1, 1e-6), (0.6, 0.0)])
def test_invalid_options_raise(alpha, epsilon):
    with pytest.raises(ValueError, match="alpha >= 0 and epsilon > 0"):
        memories.Prioritized(alpha, epsilon)
