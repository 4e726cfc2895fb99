"""Mountain car, discrete and continuous; equal to those of Gymnasium."""

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments.functional import functional_env

_LOW, _HIGH = np.float32([-1.2, -0.07]), np.float32([0.6, 0.07])


class _Valley(functional_env.FunctionalEnv):
    """Base of mountain cars. State `[N, 2]`: position and velocity; Moore (1990)."""

    observation_space = gymnasium.spaces.Box(_LOW, _HIGH)
    goal: float

    def initial(self, size, seed):
        position = tf.random.stateless_uniform([size], seed, -0.6, -0.4)
        return tf.stack([position, tf.zeros([size])], 1)

    def transition(self, state, action, seed):
        position, speed = tf.unstack(state, axis=1)
        speed += self.force(action) - 0.0025 * tf.cos(3.0 * position)
        speed = tf.clip_by_value(speed, -0.07, 0.07)
        position = tf.clip_by_value(position + speed, -1.2, 0.6)
        hit = (position <= -1.2) & (speed < 0.0)
        return tf.stack([position, tf.where(hit, 0.0, speed)], 1)

    def observation(self, state):
        return state

    def terminal(self, state):
        return (state[:, 0] >= self.goal) & (state[:, 1] >= 0.0)

    def force(self, action: tf.Tensor) -> tf.Tensor:
        """Return the acceleration due to the motor, `[N]`."""
        raise NotImplementedError


class MountainCar(_Valley):
    """Mountain car with actions left, none and right, and reward -1 per step."""

    action_space = gymnasium.spaces.Discrete(3)
    max_length = 200
    goal = 0.5

    def force(self, action):
        return 0.001 * tf.cast(action - 1, tf.float32)

    def reward(self, state, action, next_state):
        return -tf.ones_like(state[:, 0])


class ContinuousMountainCar(_Valley):
    """Mountain car with continuous actions; 100 at the goal, minus squared actions."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    max_length = 999
    goal = 0.45

    def force(self, action):
        return 0.0015 * tf.clip_by_value(action[:, 0], -1.0, 1.0)

    def reward(self, state, action, next_state):
        bonus = tf.where(self.terminal(next_state), 100.0, 0.0)
        return bonus - 0.1 * action[:, 0] ** 2
