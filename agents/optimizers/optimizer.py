"""What all optimizers have in common."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from agents.optimizers import replicas

Metrics = dict[str, tf.Tensor]
Loss = Callable[[Any], tuple[tf.Tensor, Metrics]]


class Optimizer(tf.Module):
    """Moves variables to make a loss smaller; Schaarschmidt et al. (2017), TensorForce.

        optimizer.build(variables)      # Once, before anything is traced or restored.
        metrics = optimizer.step(loss_fn, variables, items=items, kl=kl, seed=seed)

    The loss is a function, so the optimizer decides where and how often it is
    evaluated, all in the graph. Optimizers wrap optimizers: what is around changes how
    often, on which items, or how far the one inside steps.

    Attributes:
      metric_names: Names of the scalars that `step` returns besides those of the loss.
      needs: Names of the functions and data that `step` cannot do without.
      max_kl: Divergence that a step aims at, in nats, if any.
    """

    metric_names: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    max_kl: float | None = None

    def build(self, variables: Any) -> None:
        """Create what is remembered between steps on these variables."""

    def schedule(self, time: Any) -> None:
        """Set what depends on `schedules.Time`, or on environment steps."""

    def step(self, loss_fn: Loss, variables: Any, **functions: Any) -> Metrics:
        """Move the variables once.

        Args:
          loss_fn: Maps items to the scalar mean loss over them, and metrics. With
            several devices, over their valid steps, which `items["mask"]` tells.
          variables: List of Keras variables.
          **functions: What optimizers may need besides:
            `items`, what the functions are evaluated on: a structure of tensors
            `[M, ...]`, or none;
            `kl(items, local=False)`, mean KL divergence of the model from what it was
            when the items were recorded or, if local, from what it is, held fixed (so
            that its Hessian is the Fisher information);
            `source`, the variables to be copied;
            `seed`, int32 `[2]`, of all that is random.

        Returns:
          Scalar metrics: those of the loss, means over all steps, and `metric_names`.
        """
        raise NotImplementedError


class Wrapper(Optimizer):
    """An optimizer that changes the steps of another one."""

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


def gradient(
    loss_fn: Loss, variables: Sequence[keras.Variable], items: Any
) -> tuple[list[tf.Tensor], tf.Tensor, Metrics]:
    """Gradients of the loss on items, the loss, and its metrics.

    Where variables have copies on several devices, each computes them for a part of the
    items, and the means are those of all items.
    """

    def function(items):
        values = [variable.value for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            loss, metrics = loss_fn(items)
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        return gradients, loss, metrics

    return replicas.mean(function, variables, items)


def repeat(count: Any, function: Callable[[tf.Tensor], Metrics]) -> Metrics:
    """Sums of the metrics of `function(index)`, called `count` times in a row.

    The function is traced once, though nothing is known of its metrics before.
    """
    if tf.executing_eagerly():
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
    """All metrics times a factor."""
    return tf.nest.map_structure(lambda x: x * factor, metrics)


def fold(functions: dict[str, Any], data: Any) -> dict[str, Any]:
    """The same functions, with a seed that also depends on an integer."""
    if "seed" not in functions:
        return functions
    seed = tf.random.experimental.stateless_fold_in(
        functions["seed"], data, alg="philox"
    )
    return {**functions, "seed": seed}


def order(seed: tf.Tensor, count: Any, first: tf.Tensor | None = None) -> tf.Tensor:
    """Random permutation of `count` indices, the same with and without XLA.

    Those where `first` is true, bool `[count]`, precede the others.
    """
    keys = tf.random.stateless_uniform(  # Floats would not be the same.
        [count], seed, None, None, tf.int32, alg="philox"
    )
    if first is not None:
        keys = tf.where(first, keys, tf.int32.max)
    return tf.argsort(keys, stable=True)


def size_of(items: Any) -> Any:
    """Number of items, an integer where it is static."""
    first = tf.nest.flatten(items)[0]
    return first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]


def take(items: Any, indices: tf.Tensor) -> Any:
    """Some of the items."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices), items)
