"""Running means in the graph."""

import pytest
import tensorflow as tf

from agents.tools import algorithm, metrics


def test_means_of_what_was_updated_since_the_reset():
    means = metrics.Metrics(["loss", "entropy", "unused"])
    means.update({"loss": tf.constant(1.0), "entropy": tf.constant(5.0)})
    means.update({"loss": tf.constant(2.0)})
    means.update({"loss": tf.constant(6.0)})
    assert means.result() == {"loss": 3.0, "entropy": 5.0}
    means.reset()
    assert means.result() == {}
    means.update({"entropy": tf.constant(-1.0)})
    assert means.result() == {"entropy": -1.0}


def test_order_of_names_does_not_matter():
    means = metrics.Metrics(["a", "b", "c"])
    means.update({"c": 3.0, "a": 1.0})
    means.update({"b": 2.0, "c": 5.0})
    assert means.result() == {"a": 1.0, "b": 2.0, "c": 4.0}


def test_undeclared_names_raise():
    means = metrics.Metrics(["loss"])
    with pytest.raises(KeyError, match="los.*loss"):
        means.update({"los": 1.0})


def test_many_small_values_are_added_exactly():
    means = metrics.Metrics(["value"])

    @tf.function(autograph=False)
    def update():
        def body(i):
            means.update({"value": tf.constant(1e-4)})
            return i + 1

        tf.while_loop(lambda i: i < 20_000, body, [0])

    means.update({"value": 1e4})
    update()
    expected = (1e4 + 20_000 * 1e-4) / 20_001
    assert means.result()["value"] == pytest.approx(expected, rel=1e-8)


def test_values_may_be_of_any_type_and_are_floats_in_the_end():
    means = metrics.Metrics(["integer", "variable", "python"])
    variable = tf.Variable(2.5)
    means.update({"integer": tf.constant(2**53 - 1, tf.int64), "variable": variable})
    variable.assign(0.0)
    means.update({"python": 1})
    result = means.result()
    assert result == {"integer": float(2**53 - 1), "variable": 2.5, "python": 1.0}
    assert {type(value) for value in result.values()} == {float}


def test_variables_are_made_once_and_are_not_trainable():
    means = metrics.Metrics(["a", "b"])
    count = len(means.variables)
    for _ in range(3):
        means.update({"a": 1.0})
        means.result()
        means.reset()
    assert len(means.variables) == count
    assert not means.trainable_variables
    assert metrics.Metrics([]).result() == {}


def test_value_that_is_not_finite_is_not_hidden():
    means = metrics.Metrics(["a", "b"])
    means.update({"a": float("nan"), "b": 1.0})
    result = means.result()
    assert result["a"] != result["a"]
    assert result["b"] == 1.0


def test_algorithms_report_integers_and_flags_too():
    made = algorithm.Algorithm(("count", "share"))
    for count, flag in ((3, True), (4, False)):
        made.report({"count": tf.constant(count), "share": tf.constant(flag)})
    assert made.metrics.result() == {"count": 3.5, "share": 0.5}


def test_weights_count_like_as_many_updates():
    means = metrics.Metrics(["score"])
    means.update({"score": tf.constant(2.0)}, 3.0)
    means.update({"score": tf.constant(6.0)})
    assert means.result() == {"score": 3.0}
    means.reset()
    means.update({"score": tf.constant(0.0)}, 0.0)
    assert means.result() == {}
