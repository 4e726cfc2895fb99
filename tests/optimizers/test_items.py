"""Items of losses: seeds and orders."""

import numpy as np
import pytest
import tensorflow as tf

from agents.optimizers import items as items_

SEED = tf.constant([1, 2])


def test_fold_changes_the_seed_only():
    assert items_.fold({"x": 1}, 0) == {"x": 1}
    seeds = [items_.fold({"x": 1, "seed": SEED}, i) for i in (0, 1, 1)]
    assert [x["x"] for x in seeds] == [1, 1, 1]
    first, second, third = (tuple(x["seed"].numpy()) for x in seeds)
    assert first != second == third


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_order_is_the_same_with_and_without_xla(count):
    order = tf.function(lambda: items_.order(SEED, count), jit_compile=True)().numpy()
    assert sorted(order) == list(range(count))
    np.testing.assert_array_equal(items_.order(SEED, tf.constant(count)), order)
    if count > 2:
        assert (order != range(count)).any()


@pytest.mark.parametrize("count", [7, 64])
def test_order_puts_chosen_indices_first(count):
    first = tf.range(count) % 3 == 1
    order = items_.order(SEED, count, first).numpy()
    number = int(tf.reduce_sum(tf.cast(first, tf.int32)))
    assert sorted(order) == list(range(count))
    assert (order[:number] % 3 == 1).all()
    everything = items_.order(SEED, count).numpy()
    np.testing.assert_array_equal(everything[everything % 3 == 1], order[:number])


@pytest.mark.parametrize("count", [5, 100, 1024])
def test_orders_are_like_random_permutations(count):
    """Compare with what holds for all permutations being equally likely."""
    draw = tf.function(lambda seed: items_.order(seed, count), jit_compile=True)
    orders = np.stack([draw(tf.constant([seed, 9])) for seed in range(1_000)])
    groups = orders * min(count, 8) // count
    shares = np.bincount(np.arange(count) * min(count, 8) // count) / count
    places = groups[:, :: -(-count // 16)]
    found = np.stack([np.mean(places == x, 0) for x in range(len(shares))], 1)
    deviation = np.sqrt(shares * (1 - shares) / len(orders))
    assert (np.abs(found - shares) < 5 * deviation).all()
    # Neighbours in a minibatch are not related.
    related = [np.corrcoef(x[:-1], x[1:])[0, 1] for x in orders]
    expected = [
        np.corrcoef(x[:-1], x[1:])[0, 1]
        for x in np.random.default_rng(0).permuted(np.sort(orders), axis=1)
    ]
    error = np.std(expected) / np.sqrt(len(orders))
    assert abs(np.mean(related) - np.mean(expected)) < 7 * error
    assert np.std(related) == pytest.approx(np.std(expected), rel=0.15)
    # Minibatches have as many of the first half as if they were drawn.
    part, share = count // 4, (count // 2) / count
    early = (orders[:, :part] < count // 2).sum(1)
    spread = part * share * (1 - share) * (count - part) / (count - 1)
    assert np.var(early) == pytest.approx(spread, rel=0.25)
