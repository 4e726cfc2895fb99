"""Who decides: one algorithm per file."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "A2C": "a2c",
        "PPO": "ppo",
        "PolicyGradient": "policy_gradient",
        "TRPO": "trpo",
        "VPG": "vpg",
    },
)
