"""Acrobot: swing a two-link pendulum above a line; equal to Gymnasium's Acrobot-v1."""

import math

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments.functional import functional_env

_SPEEDS = (4 * math.pi, 9 * math.pi)
_HIGH = np.float32([1, 1, 1, 1, *_SPEEDS])


class Acrobot(functional_env.FunctionalEnv):
    """Acrobot. State `[N, 4]`: both angles, both velocities; Sutton (1996)."""

    observation_space = gymnasium.spaces.Box(-_HIGH, _HIGH)
    action_space = gymnasium.spaces.Discrete(3)
    max_length = 500

    def initial(self, size, seed):
        return tf.random.stateless_uniform([size, 4], seed, -0.1, 0.1)

    def transition(self, state, action, seed):
        torque = tf.cast(action - 1, tf.float32)
        duration = 0.2
        one = _derivative(state, torque)
        two = _derivative(state + duration / 2 * one, torque)
        three = _derivative(state + duration / 2 * two, torque)
        four = _derivative(state + duration * three, torque)
        state += duration / 6 * (one + 2 * two + 2 * three + four)
        angles = tf.math.floormod(state[:, :2] + math.pi, 2 * math.pi) - math.pi
        limits = tf.constant([_SPEEDS])
        speeds = tf.clip_by_value(state[:, 2:], -limits, limits)
        return tf.concat([angles, speeds], 1)

    def observation(self, state):
        first, second, *speeds = tf.unstack(state, axis=1)
        angles = [tf.cos(first), tf.sin(first), tf.cos(second), tf.sin(second)]
        return tf.stack([*angles, *speeds], 1)

    def reward(self, state, action, next_state):
        return tf.where(self.terminal(next_state), 0.0, -1.0)

    def terminal(self, state):
        first, second = state[:, 0], state[:, 1]
        return -tf.cos(first) - tf.cos(second + first) > 1.0


def _derivative(state: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
    """Compute the derivative of states `[N, 4]`, as in the book by Sutton and Barto.

    Masses, lengths and moments of inertia are one; centers of mass lie at one half.
    """
    first, second, speed, turn = tf.unstack(state, axis=1)
    sine, cosine = tf.sin(second), tf.cos(second)
    d1 = 0.25 + (1.25 + cosine) + 2.0
    d2 = 0.25 + 0.5 * cosine + 1.0
    phi2 = 0.5 * 9.8 * tf.cos(first + second - math.pi / 2)
    phi1 = -0.5 * turn**2 * sine - turn * speed * sine
    phi1 += 1.5 * 9.8 * tf.cos(first - math.pi / 2) + phi2
    second_change = torque + d2 / d1 * phi1 - 0.5 * speed**2 * sine - phi2
    second_change /= 1.25 - d2**2 / d1
    first_change = -(d2 * second_change + phi1) / d1
    return tf.stack([speed, turn, first_change, second_change], 1)
