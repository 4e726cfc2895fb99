"""Boxes with bounds."""

from gymnasium import spaces as gs

from agents.networks import boxes


def test_squashed_policy_needs_a_bounded_box():
    assert boxes.size_of(gs.Box(-2, 2, (2, 3))) == 6
