"""Recall: choose at the end the cue that was shown at the beginning."""

import gymnasium
import tensorflow as tf

from agents.environments.functional import functional_env

_STEPS, _CUES = 10, 4


class Recall(functional_env.FunctionalEnv):
    """Recall. State int32 `[N, 2]`: step and cue.

    The first observation shows a cue, the next ones nothing, and the last one the
    request to choose; reward is 1 if that action is the cue, else zero. A policy
    without memory gets 1/4. Osband et al. (2019), "Behaviour Suite for Reinforcement
    Learning", include it as memory length.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (_CUES + 1,))
    action_space = gymnasium.spaces.Discrete(_CUES)
    max_length = _STEPS

    def initial(self, size, seed):
        cue = tf.random.stateless_uniform([size], seed, 0, _CUES, tf.int32)
        return tf.stack([tf.zeros_like(cue), cue], 1)

    def transition(self, state, action, seed):
        return state + tf.constant([1, 0])

    def observation(self, state):
        step, cue = tf.unstack(state, axis=1)
        shown = tf.one_hot(tf.where(step == 0, cue, -1), _CUES)
        choose = tf.cast(step == _STEPS - 1, tf.float32)
        return tf.concat([shown, choose[:, None]], 1)

    def reward(self, state, action, next_state):
        right = tf.cast(action, tf.int32) == next_state[:, 1]
        return tf.cast(self.terminal(next_state) & right, tf.float32)

    def terminal(self, state):
        return state[:, 0] == _STEPS
