"""Who decides: one algorithm per file."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "PPO": "ppo",
    },
)
