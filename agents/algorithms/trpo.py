"""Trust region policy optimization.

Schulman et al. (2015), "Trust Region Policy Optimization"; Schulman et al. (2016),
"High-Dimensional Continuous Control Using Generalized Advantage Estimation".
"""

import dataclasses
from typing import Any

import tensorflow as tf

from agents.algorithms import policy_gradient
from agents.tools import schedules


def trust_region(
    max_kl: schedules.Scalar | dict = 0.01, cg_max_iterations: int = 10
) -> dict:
    """Declare the natural gradient within a trust region, with a line search."""
    return {
        "type": "line_search",
        "max_iterations": 10,
        "accept_ratio": 0.1,
        "optimizer": {
            "type": "natural_gradient",
            "max_kl": max_kl,
            "cg_max_iterations": cg_max_iterations,
            "cg_damping": 0.1,
            "subsampling_fraction": 0.2,
        },
    }


def _regression() -> dict:
    return {
        "type": "minibatch",
        "epochs": 10,
        "size": 64,
        "optimizer": {"type": "adam"},
    }


@dataclasses.dataclass(frozen=True)
class Config(policy_gradient.Config):
    """Hyperparameters of TRPO."""

    type: str = "trpo"
    memory: str = "unrolls"
    optimizer: dict | str = dataclasses.field(default_factory=trust_region)
    value_optimizer: dict | str | None = dataclasses.field(default_factory=_regression)


class TRPO(policy_gradient.PolicyGradient):
    """Policy gradient with one long natural step per batch, within a trust region.

    The optimizer, a line search around natural gradients, does all of this.
    """

    def policy_loss(
        self, items: dict[str, Any], entropy_coef: tf.Tensor | float
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Importance-weighted advantages; Schulman et al. (2015), equation 14."""
        mask = items["mask"]
        old, new = self.policies(items)
        ratio = policy_gradient.importance(old, new, items)
        entropy = policy_gradient.mean(new.entropy(), mask)
        gain = policy_gradient.mean(ratio * items["advantage"], mask)
        loss = -gain - entropy_coef * entropy
        return loss, {"policy_loss": loss, "entropy": entropy}
