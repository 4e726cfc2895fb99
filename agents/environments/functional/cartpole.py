"""Cart pole: balance a pole on a cart; equal to Gymnasium's CartPole-v1."""

import math

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments.functional import functional_env

_LIMITS = np.float32([4.8, np.inf, 24 * math.pi / 180, np.inf])


class CartPole(functional_env.FunctionalEnv):
    """Cart pole. State `[N, 4]`: position, velocity, angle, angular velocity.

    Barto, Sutton and Anderson (1983), "Neuronlike adaptive elements that can solve
    difficult learning control problems".
    """

    observation_space = gymnasium.spaces.Box(-_LIMITS, _LIMITS)
    action_space = gymnasium.spaces.Discrete(2)
    max_length = 500

    def initial(self, size, seed):
        return tf.random.stateless_uniform([size, 4], seed, -0.05, 0.05)

    def transition(self, state, action, seed):
        position, speed, angle, turn = tf.unstack(state, axis=1)
        force = tf.where(action == 1, 10.0, -10.0)
        sine, cosine = tf.sin(angle), tf.cos(angle)
        push = (force + 0.05 * turn**2 * sine) / 1.1
        inertia = 0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1)
        spin = (9.8 * sine - cosine * push) / inertia
        thrust = push - 0.05 * spin * cosine / 1.1
        changes = tf.stack([speed, thrust, turn, spin], 1)
        return state + 0.02 * changes

    def observation(self, state):
        return state

    def reward(self, state, action, next_state):
        return tf.ones_like(state[:, 0])

    def terminal(self, state):
        far = tf.abs(state[:, 0]) > 2.4
        return far | (tf.abs(state[:, 2]) > 12 * math.pi / 180)
