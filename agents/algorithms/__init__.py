"""Learning algorithms, one per file."""

from agents import lazy

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
