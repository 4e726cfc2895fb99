"""Networks: layers, heads and distributions."""

from agents import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "PolicyValueNetwork": "policy_value",
        "NetworkConfig": "config",
    },
)
