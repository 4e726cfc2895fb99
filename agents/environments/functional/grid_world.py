"""Grid world: walk to a goal in a room."""

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments.functional import functional_env

_SIZE = 5
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
_AGENT, _GOAL = (40, 90, 200), (50, 160, 80)
_FLOOR = 235 - 20 * (np.indices((_SIZE, _SIZE)).sum(0) % 2)[..., None]


class GridWorld(functional_env.FunctionalEnv):
    """Grid world. State int32 `[N, 4]`: row and column of agent and goal.

    Both begin at different random cells. Actions move up, down, left or right unless a
    wall is there; reward is 1 at the goal, else -0.01.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (_SIZE, _SIZE, 2))
    action_space = gymnasium.spaces.Discrete(4)
    max_length = 50
    render_fps = 5

    def initial(self, size, seed):
        cells = _SIZE * _SIZE
        numbers = tf.random.stateless_uniform([size, 2], seed)
        agent = tf.cast(numbers[:, 0] * cells, tf.int32)
        goal = tf.cast(numbers[:, 1] * (cells - 1), tf.int32)
        goal = tf.math.floormod(agent + 1 + goal, cells)
        places = [agent // _SIZE, agent % _SIZE, goal // _SIZE, goal % _SIZE]
        return tf.stack(places, 1)

    def transition(self, state, action, seed):
        agent = state[:, :2] + tf.gather(tf.constant(_MOVES), action)
        agent = tf.clip_by_value(agent, 0, _SIZE - 1)
        return tf.concat([agent, state[:, 2:]], 1)

    def observation(self, state):
        cells = state[:, ::2] * _SIZE + state[:, 1::2]
        board = tf.one_hot(cells, _SIZE * _SIZE, axis=1)
        return tf.reshape(board, [-1, _SIZE, _SIZE, 2])

    def reward(self, state, action, next_state):
        return tf.where(self.terminal(next_state), 1.0, np.float32(-0.01))

    def terminal(self, state):
        return tf.reduce_all(state[:, :2] == state[:, 2:], 1)

    def render(self, state):
        """Draw a pixel per cell: the agent is blue, and the goal green."""
        agent, goal = tf.unstack(self.observation(state)[..., None], axis=3)
        picture = tf.where(goal > 0, _GOAL, _FLOOR)
        return tf.cast(tf.where(agent > 0, _AGENT, picture), tf.uint8)
