"""Learning algorithms, one per file."""

from typing import TYPE_CHECKING

from agents import lazy

if TYPE_CHECKING:
    from agents.algorithms.a2c import A2C as A2C
    from agents.algorithms.actor_critic import ActorCritic as ActorCritic
    from agents.algorithms.apex import Apex as Apex
    from agents.algorithms.dqn import DQN as DQN
    from agents.algorithms.impala import IMPALA as IMPALA
    from agents.algorithms.off_policy import OffPolicy as OffPolicy
    from agents.algorithms.policy_gradient import PolicyGradient as PolicyGradient
    from agents.algorithms.ppo import PPO as PPO
    from agents.algorithms.sac import SAC as SAC
    from agents.algorithms.td3 import TD3 as TD3
    from agents.algorithms.trpo import TRPO as TRPO
    from agents.algorithms.vpg import VPG as VPG

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "A2C": "a2c",
        "ActorCritic": "actor_critic",
        "Apex": "apex",
        "DQN": "dqn",
        "IMPALA": "impala",
        "OffPolicy": "off_policy",
        "PPO": "ppo",
        "PolicyGradient": "policy_gradient",
        "SAC": "sac",
        "TD3": "td3",
        "TRPO": "trpo",
        "VPG": "vpg",
    },
)
