"""Fixtures of the tests of optimizers."""

import functools

import pytest
import tensorflow as tf

from agents import optimizers


@pytest.fixture(params=["eager", "graph", "xla"])
def compiled(request):
    """Decorator of functions of tensors: none, a graph, or a graph compiled by XLA."""
    if request.param == "eager":
        return lambda function: function
    xla = request.param == "xla" or None
    return functools.partial(tf.function, autograph=False, jit_compile=xla)


@pytest.fixture
def move():
    """Optimizer that assigns functions of the old value and the seed."""

    class Move(optimizers.Optimizer):
        metric_names = ("moved",)

        def __init__(self, *functions):
            super().__init__()
            self._functions = list(functions)

        def step(self, loss_fn, variables, **functions):
            _, metrics = loss_fn(functions.get("items"))
            for variable, new in zip(variables, self._functions, strict=True):
                variable.assign(new(variable.value, functions.get("seed")))
            return {**metrics, "moved": tf.constant(1.0)}

    return Move
