"""Measurement of speed and bottlenecks."""

from agents.experiments import speed


def test_bottleneck_is_named():
    rates = {"env": 100.0, "policy": 1e4, "transport": 1e4, "end_to_end": 90.0}
    assert "environments take most (90% of" in speed._advice(rates, "workers", False)
    rates |= {"env": 1e4, "policy": 100.0}
    assert "policy takes most (90%" in speed._advice(rates, "workers", True)
    rates |= {"policy": 1e4, "end_to_end": 100.0}
    assert "learning takes most (97%" in speed._advice(rates, "workers", True)
