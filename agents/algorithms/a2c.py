"""Advantage actor-critic: frequent small steps on short unrolls of many agents.

Mnih et al. (2016), "Asynchronous Methods for Deep Reinforcement Learning", in its
synchronous form.
"""

import dataclasses

from agents.algorithms import policy_gradient
from agents.tools import bounds, schedules


def _descent() -> dict:
    return {
        "type": "rmsprop",
        "rho": 0.99,
        "epsilon": 1e-5,
        "clip_norm": 0.5,
    }


@dataclasses.dataclass(frozen=True)
class Config(policy_gradient.Config):
    """Hyperparameters of A2C; the defaults are those of OpenAI Baselines."""

    type: str = "a2c"
    memory: str = "unrolls"
    unroll_length: bounds.Size = 5
    chunk_length: bounds.Size = 5
    gae_lambda: bounds.Fraction = 1.0
    normalize_advantages: bool = False
    entropy_coef: schedules.Scalar = 0.01
    learning_rate: bounds.NotNegative = 7e-4
    optimizer: dict | str = dataclasses.field(default_factory=_descent)


class A2C(policy_gradient.PolicyGradient):
    """Actor-critic with one joint step of policy and values per short unroll."""
