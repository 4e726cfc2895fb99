"""Catch: move a paddle below a falling ball."""

import gymnasium
import tensorflow as tf

from agents.environments.functional import functional_env

_ROWS, _COLUMNS = 10, 5


class Catch(functional_env.FunctionalEnv):
    """Catch. State int32 `[N, 3]`: row and column of the ball, column of the paddle.

    The ball falls by one row per step from a random column of the first row. The final
    reward is 1 if the paddle, in the last row, is below the ball, else -1. Osband et
    al. (2019), "Behaviour Suite for Reinforcement Learning".
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (_ROWS, _COLUMNS))
    action_space = gymnasium.spaces.Discrete(3)
    max_length = _ROWS

    def initial(self, size, seed):
        ball = tf.random.stateless_uniform([size], seed, 0, _COLUMNS, tf.int32)
        paddle = tf.fill([size], _COLUMNS // 2)
        return tf.stack([tf.zeros_like(ball), ball, paddle], 1)

    def transition(self, state, action, seed):
        row, ball, paddle = tf.unstack(state, axis=1)
        paddle += tf.cast(action, tf.int32) - 1
        paddle = tf.clip_by_value(paddle, 0, _COLUMNS - 1)
        return tf.stack([row + 1, ball, paddle], 1)

    def observation(self, state):
        row, ball, paddle = tf.unstack(state, axis=1)
        cells = _ROWS * _COLUMNS
        board = tf.one_hot(row * _COLUMNS + ball, cells)
        board += tf.one_hot((_ROWS - 1) * _COLUMNS + paddle, cells)
        board = tf.minimum(board, 1.0)
        return tf.reshape(board, [-1, _ROWS, _COLUMNS])

    def reward(self, state, action, next_state):
        caught = next_state[:, 1] == next_state[:, 2]
        reward = tf.where(caught, 1.0, -1.0)
        return tf.where(self.terminal(next_state), reward, 0.0)

    def terminal(self, state):
        return state[:, 0] == _ROWS - 1
