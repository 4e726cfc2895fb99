"""Values of hyperparameters over environment steps."""

import types

import numpy as np
import pytest
import tensorflow as tf

from agents.tools import config, schedules

MOVING = ("linear", "polynomial", "cosine", "exponential")


def value(kind, start, end, step, over=1000.0, **keywords):
    schedule = schedules.Schedule(kind, start, end, over, **keywords)
    result = schedules.value(schedule, tf.constant(step, tf.int64))
    assert result.dtype == tf.float32
    return float(result)


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("linear", 0, 8.0),
        ("linear", 250, 6.5),
        ("linear", 500, 5.0),
        ("linear", 1000, 2.0),
        ("polynomial", 0, 8.0),
        ("polynomial", 250, 6.5),
        ("polynomial", 1000, 2.0),
        ("cosine", 0, 8.0),
        ("cosine", 250, 5 + 3 * 2**-0.5),
        ("cosine", 500, 5.0),
        ("cosine", 750, 5 - 3 * 2**-0.5),
        ("cosine", 1000, 2.0),
        ("exponential", 0, 8.0),
        ("exponential", 250, 8 / 2**0.5),
        ("exponential", 500, 4.0),
        ("exponential", 1000, 2.0),
    ],
)
def test_values(kind, step, expected):
    assert value(kind, 8.0, 2.0, step) == pytest.approx(expected, rel=1e-6)


def test_all_types_are_tested():
    assert {*MOVING, "constant", "piecewise"} == set(schedules.Schedule.TYPES)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 3.0), (9, 3.0), (10, 2.0), (19, 2.0), (20, 7.0), (99, 7.0)],
)
def test_piecewise(step, expected):
    schedule = schedules.Schedule(
        "piecewise", values=(3.0, 2.0, 7.0), boundaries=(10.0, 20.0)
    )
    assert float(schedules.value(schedule, tf.constant(step, tf.int64))) == expected
    assert schedules.ends(schedule) == (3.0, 2.0, 7.0)


LATE = 20_000_001
"""A step that float32 does not have."""


def compute(schedule, steps, jit):
    """Values at steps that a variable counts, in a graph."""
    step = tf.Variable(0, dtype=tf.int64)
    graph = tf.function(
        lambda: schedules.value(schedule, step), autograph=False, jit_compile=jit
    )
    return [float(graph()) for x in steps if step.assign(x) is not None]


@pytest.mark.parametrize("jit", [False, True])
def test_boundaries_are_exact_at_any_step(jit):
    for boundary in (LATE, 2**31 + 1, 2**52 + 1):
        schedule = schedules.Schedule(
            "piecewise", values=(1.0, 2.0), boundaries=(float(boundary),)
        )
        steps = (boundary - 1, boundary, boundary + 1)
        assert compute(schedule, steps, jit) == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("kind", MOVING)
def test_ends_are_reached_at_their_step(kind, jit):
    schedule = schedules.Schedule(kind, 1e6, 1.0, float(LATE))
    before, end = compute(schedule, (LATE - 1, LATE), jit)
    assert end == 1.0
    assert (before > end) == (kind != "cosine")  # Which is flat there.


def test_units():
    time = schedules.Elapsed(tf.constant(5, tf.int64), tf.constant(2, tf.int64))
    steps = schedules.Schedule("linear", 10.0, 0.0, 10.0)
    updates = schedules.Schedule("linear", 10.0, 0.0, 10.0, unit="updates")
    assert float(schedules.value(steps, time)) == 5.0
    assert float(schedules.value(updates, time)) == 8.0


def test_current_values_of_a_config():
    config = types.SimpleNamespace(
        rate=schedules.Schedule("linear", 1.0, 0.0, 10.0), clip=0.2, name="x"
    )
    now = schedules.Current(config, schedules.Elapsed(tf.constant(5), tf.constant(0)))
    assert float(now.rate) == 0.5
    assert (now.clip, now.name) == (0.2, "x")
    with pytest.raises(AttributeError, match="nothing"):
        _ = now.nothing


def test_held_values_change_when_they_are_told_the_time():
    held = schedules.Held(schedules.Schedule("linear", 1.0, 0.0, 10.0))
    assert float(held.value) == 1.0
    held.update(schedules.Elapsed(tf.constant(5), tf.constant(0)))
    assert float(held.value) == 0.5
    number = schedules.Held(0.3)
    number.update(schedules.Elapsed(tf.constant(5), tf.constant(0)))
    assert number.value == 0.3


@pytest.mark.parametrize(
    ("power", "step", "expected"),
    [
        (2.0, 0, 8.0),
        (2.0, 250, 2 + 6 * 9 / 16),
        (2.0, 500, 3.5),
        (3.0, 500, 2.75),
        (0.5, 750, 5.0),
        (0.5, 1000, 2.0),
        (2.0, 10**12, 2.0),
    ],
)
def test_polynomial(power, step, expected):
    actual = value("polynomial", 8.0, 2.0, step, power=power)
    assert actual == pytest.approx(expected, rel=1e-6)


def test_constant():
    for step in (0, 10, 10**12):
        assert value("constant", 0.25, None, step, None) == 0.25


@pytest.mark.parametrize("kind", MOVING)
def test_value_stays_at_the_end(kind):
    for step in (1000, 1001, 10**12):
        assert value(kind, 3e-4, 1e-5, step) == pytest.approx(1e-5, rel=1e-5)


def test_linear_schedule_reaches_zero_exactly():
    assert value("linear", 3e-4, 0.0, 10**6, over=1e6) == 0.0
    assert value("linear", 3e-4, 0.0, 10**6 - 2048, over=1e6) > 0.0


@pytest.mark.parametrize("kind", MOVING)
def test_schedules_may_rise_and_are_monotonic(kind):
    values = [value(kind, 0.1, 10.0, step) for step in range(0, 1001, 50)]
    assert values == sorted(values)
    assert len(set(values)) == len(values)


def test_constants_stay_what_they_are():
    assert schedules.value(0.5, tf.constant(3)) == 0.5
    assert isinstance(schedules.value(0.5, tf.constant(3)), float)


def test_works_in_the_graph_with_a_variable_in_one_trace():
    schedule = schedules.Schedule("linear", 1.0, 0.0, 10)
    step = tf.Variable(0, dtype=tf.int64)
    function = tf.function(lambda: schedules.value(schedule, step), autograph=False)
    values = []
    for _ in range(4):
        values.append(float(function()))
        step.assign_add(3)
    assert values == pytest.approx([1.0, 0.7, 0.4, 0.1])
    assert function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quadratic", 1, 0, 10), "quadratic.*linear"),
        (("linear", 1, 0, 0), "positive number of steps"),
        (("linear", 1, 0, -5), "positive number of steps"),
        (("exponential", 1, 0, 10), "positive ends"),
        (("exponential", -1, 1, 10), "positive ends"),
        (("linear", 1), "an end and a number of steps"),
        (("cosine", 1, 0), "an end and a number of steps"),
        (("linear", 1, None, 10), "an end and a number of steps"),
        (("constant", 1, 0), "constant schedule has no end"),
        (("constant", 1, None, 10), "constant schedule has no end"),
        (("constant", 1, None, None, 2), "Only a polynomial"),
        (("linear", 1, 0, 10, 2), "Only a polynomial"),
        (("polynomial", 1, 0, 10, 0), "positive power"),
        (("polynomial", 1, 0, 10, -1), "positive power"),
    ],
)
def test_impossible_schedules_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        schedules.Schedule(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"type": "linear"}, "a number to start from"),
        ({"type": "constant", "start": 1.0, "unit": "days"}, "unit 'days' is not one"),
        ({"type": "constant", "start": 1.0, "values": (1.0,)}, "Only a piecewise"),
        ({"type": "piecewise", "start": 1.0, "values": (1.0,)}, "has only values"),
        ({"type": "piecewise"}, "one value more"),
        (
            {"type": "piecewise", "values": (1.0,), "boundaries": (1.0,)},
            "one value more",
        ),
        (
            {"type": "piecewise", "values": (1.0, 2.0, 3.0), "boundaries": (2.0, 1.0)},
            "increasing boundaries",
        ),
    ],
)
def test_impossible_pieces_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        schedules.Schedule(**arguments)


def test_form_of_pieces_and_units_in_config_files():
    pieces = schedules.Schedule("piecewise", values=(1.0, 2.0), boundaries=(3.0,))
    form = {"type": "piecewise", "values": [1.0, 2.0], "boundaries": [3.0]}
    assert pieces.to_dict() == form
    linear = schedules.Schedule("linear", 1.0, 0.0, 5.0, unit="updates")
    assert linear.to_dict()["unit"] == "updates"
    for schedule in (pieces, linear):
        assert config.convert(schedules.Schedule, schedule.to_dict(), "x") == schedule


@pytest.mark.parametrize(
    ("schedule", "form"),
    [
        (("linear", 3e-4, 0, 1e6), {"from": 3e-4, "to": 0, "over": 1e6}),
        (("cosine", 1.0, 0.5, 9), {"from": 1.0, "to": 0.5, "over": 9}),
        (("constant", 0.5), {"from": 0.5}),
        (
            ("polynomial", 1.0, 0.0, 9.0, 2.0),
            {"from": 1.0, "to": 0.0, "over": 9.0, "power": 2.0},
        ),
    ],
)
def test_form_in_config_files(schedule, form):
    assert schedules.Schedule(*schedule).to_dict() == {"type": schedule[0], **form}


@pytest.mark.parametrize("kind", [*MOVING, "constant", "piecewise"])
def test_numpy_gives_the_same_values(kind):
    if kind == "piecewise":
        schedule = schedules.Schedule(
            kind, values=(3.0, 2.0, 7.0), boundaries=(1.0, 500.0)
        )
    elif kind == "constant":
        schedule = schedules.Schedule(kind, 0.3)
    else:
        schedule = schedules.Schedule(kind, 8.0, 2.0, 1000.0)
    for step in (0, 1, 499, 500, 2000):
        expected = schedules.value(schedule, tf.constant(step, tf.int64))
        found = schedules.evaluate(schedule, np.float64(step), np)
        assert float(found) == pytest.approx(float(expected), rel=1e-6)
