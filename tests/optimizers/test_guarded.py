"""Undoing of steps with results that are not finite."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


class Problem:
    """Loss of one variable that also counts its calls; it can be made to fail."""

    def __init__(self, max_failures=1):
        self.x, self.calls = keras.Variable([4.0]), keras.Variable(0.0)
        self.broken = {x: keras.Variable(0.0) for x in ("loss", "kl", "gradient")}
        inside = optimizers.Gradient("adam", 0.1)
        self.optimizer = optimizers.Guarded(inside, max_failures)
        self.optimizer.build([self.x])

    def loss(self, items):
        self.calls.assign_add(1.0)
        poison = tf.custom_gradient(
            lambda x: (x, lambda y: y + self._nothing("gradient"))
        )
        x = poison(self.x.value)[0] + self._nothing("loss")
        loss = 0.5 * x**2
        return loss, {"loss": loss}

    def kl(self, items, local=False):
        return self.x.value[0] ** 2 + self._nothing("kl")

    def step(self):
        functions = {"kl": self.kl, "state": [self.calls]}
        return self.optimizer.step(self.loss, [self.x], **functions)

    def numbers(self):
        slots = [x.numpy() for x in self.optimizer.optimizer.optimizer.variables]
        return [self.x.numpy(), self.calls.numpy(), *slots]

    def _nothing(self, name):
        return tf.where(self.broken[name].value > 0, np.nan, 0.0)


@pytest.mark.parametrize("where", ["loss", "kl", "gradient"])
def test_what_fails_is_undone(compiled, where):
    problem = Problem(max_failures=2)
    step = compiled(problem.step)
    assert step()["failed_updates"] == 0.0
    before = problem.numbers()
    for failure in range(5):  # Two in a row at most.
        broken = failure != 2
        problem.broken[where].assign(float(broken))
        metrics = step()
        assert set(metrics) == {"loss", *problem.optimizer.metric_names}
        assert metrics["failed_updates"] == float(broken)
        if broken:
            assert metrics["loss"] == metrics["gradient_norm"] == 0.0
            for ours, theirs in zip(problem.numbers(), before, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        else:
            assert problem.x.numpy() < before[0]
            before = problem.numbers()


def test_too_many_failures_in_a_row_are_seen(compiled):
    problem = Problem(max_failures=1)
    step = compiled(problem.step)
    problem.broken["loss"].assign(1.0)
    assert np.isfinite(step()["loss"])
    assert np.isnan(step()["loss"])


def test_without_failures_nothing_is_undone(compiled):
    problem = Problem(max_failures=0)
    assert problem.optimizer.metric_names == ("gradient_norm", "learning_rate")
    problem.broken["loss"].assign(1.0)
    assert np.isnan(compiled(problem.step)()["loss"])
    assert np.isnan(problem.x.numpy())
