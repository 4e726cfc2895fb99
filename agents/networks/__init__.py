"""Networks: layers, heads and distributions."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.networks.config import NetworkConfig as NetworkConfig
    from agents.networks.policy_value import PolicyValueNetwork as PolicyValueNetwork

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "PolicyValueNetwork": "policy_value",
        "NetworkConfig": "config",
    },
)
