"""Base of all optimizers."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Metrics = dict[str, tf.Tensor]
Loss = Callable[[Any], tuple[tf.Tensor, Metrics]]


class Optimizer(tf.Module):
    """Rule that reduces a loss; Schaarschmidt et al. (2017), TensorForce.

        optimizer.build(variables)      # Once, before anything is traced or restored.
        metrics = optimizer.step(loss_fn, variables, items=items, kl=kl, seed=seed)

    The loss is a function, so the optimizer decides where and how often to evaluate it
    inside the graph. Optimizers wrap optimizers: the outer one changes how often, on
    which items, or how far the inner one steps.

    Attributes:
      metric_names: Names of the scalars that `step` returns besides those of the loss.
      needs: Names of the functions and data that `step` requires.
      max_kl: Target divergence of a step in nats, if any; a variable for schedules.
    """

    metric_names: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    max_kl: float | tf.Variable | None = None

    def build(self, variables: Any) -> None:
        """Create state for steps on these variables."""

    def schedule(self, time: Any) -> None:
        """Set scheduled values for a `schedules.Elapsed`, or for environment steps."""

    def step(self, loss_fn: Loss, variables: Any, **functions: Any) -> Metrics:
        """Move the variables once.

        Args:
          loss_fn: Maps items to the scalar mean loss over them, and metrics. With
            several devices, the mean is over valid steps of `items["mask"]`.
          variables: List of Keras variables.
          **functions: Further inputs of optimizers:
            `items`, arguments of the functions: a structure of tensors `[M, ...]`, or
            none;
            `kl(items, local=False)`, mean KL divergence of the model from that at the
            time of the items or, if local, from the current one held constant (so that
            its Hessian is the Fisher information);
            `source`, the variables to copy;
            `state`, variables that the loss changes, such as batch statistics;
            `seed`, int32 `[2]`, of all random numbers.

        Returns:
          Scalar metrics: those of the loss, means over all steps, and `metric_names`.
        """
        raise NotImplementedError


class Wrapper(Optimizer):
    """Optimizer that changes the steps of another one."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.metric_names = optimizer.metric_names
        self.needs = optimizer.needs
        self.max_kl = optimizer.max_kl

    def build(self, variables: Any) -> None:
        self.optimizer.build(variables)

    def schedule(self, time: Any) -> None:
        self.optimizer.schedule(time)


def repeat(count: Any, function: Callable[[tf.Tensor], Metrics]) -> Metrics:
    """Call `function(index)` repeatedly, and return the sums of its metrics.

    The function is traced once, before the names of its metrics are known.
    """
    if tf.executing_eagerly() and count > 0:
        results = [function(tf.constant(index)) for index in range(int(count))]
        return tf.nest.map_structure(lambda *x: tf.add_n(x), *results)
    traced = tf.function(function, autograph=False)
    traced = traced.get_concrete_function(tf.TensorSpec([], tf.int32))
    names = sorted(traced.structured_outputs)

    def body(index, total):
        metrics = traced(index)
        return index + 1, total + tf.stack([metrics[name] for name in names])

    _, total = tf.while_loop(
        lambda index, _: index < count,
        body,
        (0, tf.zeros([len(names)])),
        parallel_iterations=1,
    )
    return dict(zip(names, tf.unstack(total), strict=True))


def scale(metrics: Metrics, factor: Any) -> Metrics:
    """Multiply all metrics by a factor."""
    return tf.nest.map_structure(lambda x: x * factor, metrics)
