"""Vanilla policy gradient: REINFORCE with a learned baseline.

Williams (1992), "Simple Statistical Gradient-Following Algorithms for Connectionist
Reinforcement Learning"; Schulman et al. (2016) for the advantages.
"""

import dataclasses

from agents.algorithms import policy_gradient
from agents.tools import bounds


def _ascent() -> dict:
    return {"type": "adam"}


def _regression() -> dict:
    return {
        "type": "minibatch",
        "epochs": 10,
        "size": 256,
        "optimizer": {"type": "adam", "learning_rate": 1e-3},
    }


@dataclasses.dataclass(frozen=True)
class Config(policy_gradient.Config):
    """Hyperparameters of VPG."""

    type: str = "vpg"
    gae_lambda: bounds.Fraction = 0.97
    learning_rate: bounds.NotNegative = 3e-3
    optimizer: dict | str = dataclasses.field(default_factory=_ascent)
    value_optimizer: dict | str | None = dataclasses.field(default_factory=_regression)


class VPG(policy_gradient.PolicyGradient):
    """Policy gradient with one policy step per batch of whole episodes."""
