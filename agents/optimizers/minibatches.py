"""Several epochs of steps over the items of a batch, in random minibatches."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def minibatch_steps(
    step: Callable[[Any], dict[str, tf.Tensor]],
    names: Sequence[str],
    items: Any,
    epochs: int,
    size: int | None,
    seed: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Call `step` with every item once per epoch, in a new order each time.

    Args:
      step: Takes items `[K, ...]`, returns scalar metrics of these names.
      names: Names of the metrics.
      items: Structure of tensors `[M, ...]`; M may be dynamic, if not under XLA.
      epochs: Times that every item is used.
      size: Items per step (the last step of an epoch takes what remains), or none for
        all at once.
      seed: Of the permutations, int32 `[2]`.

    Returns:
      Means of the metrics over all steps.
    """
    first = tf.nest.flatten(items)[0]
    count = first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]
    if size is not None and isinstance(count, int):
        size = min(size, count)  # XLA checks the slices of loops that never run.

    def run(chosen, total):
        metrics = step(chosen)
        return total + tf.stack([metrics[name] for name in names] + [1.0])

    def run_some(indices, total):
        chosen = tf.nest.map_structure(lambda x: tf.gather(x, indices), items)
        return run(chosen, total)

    def epoch(index, total):
        if size is None:
            return index + 1, run(items, total)
        # Integers are the same under XLA, floats are not.
        keys = tf.random.stateless_uniform(
            [count], seed + index, None, None, tf.int32, alg="philox"
        )
        order = tf.argsort(keys, stable=True)
        _, total = tf.while_loop(
            lambda i, _: i < count // size,
            lambda i, total: (
                i + 1,
                run_some(tf.slice(order, [i * size], [size]), total),
            ),
            (0, total),
        )
        rest = count % size
        if isinstance(rest, int):
            return index + 1, run_some(order[count - rest :], total) if rest else total
        total = tf.cond(
            rest > 0, lambda: run_some(order[count - rest :], total), lambda: total
        )
        return index + 1, total

    total = tf.zeros([len(names) + 1])
    _, total = tf.while_loop(lambda i, _: i < epochs, epoch, (0, total))
    return dict(zip(names, tf.unstack(total[:-1] / total[-1]), strict=True))
