"""Small agents of all policy gradients, and environments for them."""

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import batch, effective, numbers

from agents import networks, tools
from agents.algorithms import a2c, ppo, trpo, vpg

CLASSES = {"a2c": a2c.A2C, "ppo": ppo.PPO, "trpo": trpo.TRPO, "vpg": vpg.VPG}
CONFIGS = {"a2c": a2c.Config, "ppo": ppo.Config, "trpo": trpo.Config, "vpg": vpg.Config}
NETWORKS = {
    "dense": networks.NetworkConfig(layers=(8,)),
    "shared": networks.NetworkConfig(layers=(8,), shared=True),
    "gru": networks.NetworkConfig(layers=({"type": "gru", "units": 4},)),
}
SGD = {"type": "sgd", "learning_rate": 0.1}
TRUST_REGION = {
    "type": "line_search",
    "optimizer": {
        "type": "natural_gradient",
        "cg_max_iterations": 3,
        "subsampling_fraction": 0.5,
    },
}
ADAM = {"type": "adam", "learning_rate": 1e-3}
FEW_STEPS = {
    "ppo": {"epochs": 2},
    "trpo": {
        "optimizer": TRUST_REGION,
        "value_optimizer": {"type": "minibatch", "epochs": 2, "optimizer": ADAM},
    },
}


class Noise(gymnasium.Env):
    """Observes noise; the reward is noise and the first action."""

    observation_space = gs.Box(-np.inf, np.inf, (3,))

    def __init__(self, length=4, discrete=False):
        self.action_space = gs.Discrete(3) if discrete else gs.Box(-1, 1, (2,))
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        reward = self.np_random.normal() + float(np.ravel(action)[0])
        return self._observe(), reward, self._time == self._length, False, {}

    def _observe(self):
        return self.np_random.normal(1, 3, 3).astype(np.float32)


def noise(count=4, lengths=(4, 4, 4, 4), **kwargs):
    return batch(*(Noise(lengths[i % len(lengths)], **kwargs) for i in range(count)))


def make(name, envs, network="dense", cls=None, max_length=8, **changes):
    defaults = {
        "update_every": 4,
        "unroll_length": 8,
        "chunk_length": 4,
        "jit": False,
        "network": NETWORKS[network] if isinstance(network, str) else network,
        **({} if changes.get("jit") else FEW_STEPS.get(name, {})),
    }
    values = {"memory": CONFIGS[name].memory, **defaults, **changes}
    config = CONFIGS[name](**effective(values))
    spaces = envs.observation_space, envs.action_space
    return (cls or CLASSES[name])(*spaces, len(envs), max_length, config)


def variables(agent):
    return numbers(agent.network.trainable_variables)


def failing(name):
    """Class whose loss is no number while `broken` is true."""

    class Failing(CLASSES[name]):
        def __init__(self, *args):
            super().__init__(*args)
            self.broken = tf.Variable(False, trainable=False)

        def policy_loss(self, items, entropy_coef):
            loss, metrics = super().policy_loss(items, entropy_coef)
            loss *= tf.where(self.broken, np.nan, 1.0)
            return loss, {**metrics, "policy_loss": loss}

    return Failing


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    envs.discontinue(np.arange(len(envs)))
    result = tools.simulate(envs, agent, steps, training=False)
    return result["score"].numpy()[result["done"].numpy()].mean()


class Forbidding(gymnasium.Env):
    """Fails if a forbidden action is chosen; pays for the largest allowed one."""

    observation_space = gs.Dict(
        observation=gs.Box(0, 1, (4,)), action_mask=gs.Box(0, 1, (4,), np.int8)
    )
    action_space = gs.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        if not self._mask[action]:
            raise ValueError(f"Action {action} is forbidden.")
        self._time += 1
        reward = float(action == np.flatnonzero(self._mask)[-1])
        return self._observe(), reward, self._time == 5, False, {}

    def _observe(self):
        self._mask = np.zeros(4, np.int8)
        self._mask[self.np_random.choice(4, 2, replace=False)] = 1
        return {"observation": np.ones(4, np.float32), "action_mask": self._mask}
