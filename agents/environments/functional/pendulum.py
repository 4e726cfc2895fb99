"""Pendulum: swing it up and hold it; equal to Gymnasium's Pendulum-v1."""

import math

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments.functional import functional_env

_HIGH = np.float32([1, 1, 8])


class Pendulum(functional_env.FunctionalEnv):
    """Pendulum. State `[N, 2]`: angle (zero is up) and angular velocity."""

    observation_space = gymnasium.spaces.Box(-_HIGH, _HIGH)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
    max_length = 200

    def initial(self, size, seed):
        high = tf.constant([math.pi, 1.0])
        return tf.random.stateless_uniform([size, 2], seed, -1.0, 1.0) * high

    def transition(self, state, action, seed):
        angle, speed = tf.unstack(state, axis=1)
        torque = tf.clip_by_value(action[:, 0], -2.0, 2.0)
        speed += (15.0 * tf.sin(angle) + 3.0 * torque) * 0.05
        speed = tf.clip_by_value(speed, -8.0, 8.0)
        return tf.stack([angle + 0.05 * speed, speed], 1)

    def observation(self, state):
        angle, speed = tf.unstack(state, axis=1)
        return tf.stack([tf.cos(angle), tf.sin(angle), speed], 1)

    def reward(self, state, action, next_state):
        angle, speed = tf.unstack(state, axis=1)
        torque = tf.clip_by_value(action[:, 0], -2.0, 2.0)
        angle = tf.math.floormod(angle + math.pi, 2 * math.pi) - math.pi
        return -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)

    def terminal(self, state):
        return tf.zeros_like(state[:, 0], tf.bool)
