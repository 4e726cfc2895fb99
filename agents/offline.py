"""Offline learning: from the steps of others, and from recorded actions.

The functions take the algorithm as an argument. Register variants for your own classes
by `@offline.learn_from.register`.
"""

import functools
from typing import Any

import tensorflow as tf

from agents import returns
from agents.algorithms import (
    actor_critic,
    impala,
    off_policy,
    policy_gradient,
    sac,
    td3,
)
from agents.networks import boxes, modes
from agents.tools import algorithm as algorithm_
from agents.tools import rows


def update(
    algorithm: algorithm_.Algorithm, fragments: dict[str, Any], mask: tf.Tensor
) -> None:
    """Update on fragments of episodes from any source.

    Preprocessing stages learn from the fragments first, and the algorithm gets the
    preprocessed observations.

    Args:
      algorithm: Algorithm to update, as if its current policy had acted.
      fragments: Structures of `[F, T, ...]`: `observation`, `action` of the
        environment, `reward`, `terminated`, `truncated`, `next_observation`. They may
        contain ends of episodes; every fragment is cut off after its last step.
      mask: Valid steps, bool `[F, T]`, at the beginning of each fragment.

    Raises:
      NotImplementedError: if `learn_from` has no variant for the algorithm.
    """
    preprocessing = getattr(algorithm, "preprocessing", None)
    if preprocessing is not None:
        preprocessing.learn(fragments, mask)
        fragments = preprocessing.see(fragments)
    learn_from(algorithm, fragments, mask)


@functools.singledispatch
def learn_from(
    algorithm: algorithm_.Algorithm, fragments: dict[str, Any], mask: tf.Tensor
) -> None:
    """Update on fragments with preprocessed observations; see `update`."""
    raise NotImplementedError(
        f"{type(algorithm).__name__} cannot learn from the data of others."
    )


@functools.singledispatch
def learn_from_memory(algorithm: algorithm_.Algorithm) -> None:
    """Update on the data of the memory, even if no update is due; not in a graph.

    Raises:
      ValueError: if the memory holds too little data.
      NotImplementedError: if there is no variant for the algorithm.
    """
    raise NotImplementedError(
        f"{type(algorithm).__name__} cannot learn when it is told to."
    )


@functools.singledispatch
def imitation(
    algorithm: algorithm_.Algorithm, items: dict[str, Any]
) -> tuple[tf.Tensor, list]:
    """Compute the behavioral-cloning loss, and return the variables it trains.

    The loss is the mean of -log p(action) or, for deterministic policies, the mean
    squared difference of actions between -1 and 1. Penalties of layers are added.

    Args:
      algorithm: Algorithm with the policy to train.
      items: `observation`, `action` of the environment, and `first` (steps that begin
        an episode or fragment), structures of `[B, T, ...]`.

    Raises:
      NotImplementedError: if there is no variant for the algorithm.
    """
    raise NotImplementedError(
        f"{type(algorithm).__name__} has no policy that could imitate actions."
    )


# Actor-critics.


@learn_from.register
def _(algorithm: actor_critic.ActorCritic, fragments, mask) -> None:
    """Update on fragments, each from an initial recurrent state."""
    missing = -mask.shape[1] % algorithm.config.chunk

    def pad(x):
        return tf.pad(x, [[0, 0], [0, missing], *[[0, 0]] * (x.shape.rank - 2)])

    fragments, mask = tf.nest.map_structure(pad, (fragments, mask))
    over = fragments["terminated"] | fragments["truncated"]
    done = over | rows.last(mask)
    first = rows.before(done, True)
    start = algorithm.network.initial_state(mask.shape[0])
    parameters, _, states = algorithm.network.sequence(
        algorithm.observations(fragments["observation"]), start, first
    )
    reward = fragments["reward"]
    data = {
        "observation": fragments["observation"],
        "reward": reward,
        "discounted": returns.running(reward, first, algorithm.now.discount),
        "done": done,
        "sample": _samples(algorithm, fragments["action"], done),
        "parameters": parameters,
        "state": tf.nest.map_structure(
            lambda x: tf.where(first[..., None], 0.0, rows.before(x, 0.0)), states
        ),
        **_following(algorithm, fragments, done, states),
    }
    algorithm.learn(data, mask)


@functools.singledispatch
def _following(algorithm, fragments, done, states) -> dict[str, Any]:
    """Return the facts about states after steps for `learn`, `[F, T, ...]`.

    Args:
      algorithm: The actor-critic.
      fragments: Fragments, see `update`.
      done: Ends of episodes and fragments.
      states: Recurrent states after the steps, `[F, T, units]`.
    """
    raise NotImplementedError(
        f"{type(algorithm).__name__} cannot learn from the data of others."
    )


@_following.register
def _(algorithm: policy_gradient.PolicyGradient, fragments, done, states):
    seen = algorithm.observations(fragments["next_observation"])
    _, value, _ = algorithm.network.step(*rows.merge_time((seen, states)))
    cut = done & ~fragments["terminated"]
    return {"bootstrap": tf.where(cut, tf.reshape(value, cut.shape), 0.0)}


@_following.register
def _(algorithm: impala.IMPALA, fragments, done, states):
    """Treat the current policy as the one that acted."""
    return {
        "next_observation": fragments["next_observation"],
        "terminated": fragments["terminated"],
        "version": tf.fill(done.shape, algorithm.updates.read_value()),
    }


@learn_from_memory.register
def _(algorithm: actor_critic.ActorCritic) -> None:
    if not algorithm.config.whole_episodes:
        raise ValueError(
            f"{algorithm.config.type} learns from unrolls by itself, as soon as they are "
            "complete; give a batch to learn from others."
        )
    if not algorithm.memory.count:
        raise ValueError("no episode is finished; observe more first.")
    algorithm.train()


@imitation.register
def _(algorithm: actor_critic.ActorCritic, items):
    first, network = items["first"], algorithm.network

    def loss():
        parameters = network.policy(
            algorithm.observations(items["observation"]),
            network.initial_state(tf.shape(first)[0]),
            first,
        )
        distribution = network.head.distribution(parameters)
        log_prob = distribution.log_prob(_samples(algorithm, items["action"], first))
        return -tf.reduce_mean(log_prob), {}

    return modes.learning(loss, network)()[0], network.policy_variables


def _samples(algorithm: Any, action: Any, like: tf.Tensor) -> Any:
    """Convert actions `[B, T, ...]` to samples; `like` is any tensor `[B, T]`."""
    leading = tf.unstack(tf.shape(like))
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, [*leading, *x.shape[1:]]),
        algorithm.network.head.sample_of(rows.merge_time(action)),
    )


# Algorithms with a replay memory.


@learn_from.register
def _(algorithm: off_policy.OffPolicy, fragments, mask) -> None:
    """Update on all transitions as one batch."""
    config = algorithm.config
    observation, terminated = fragments["observation"], fragments["terminated"]
    if config.normalize_observations:
        algorithm.observations.update(observation, mask)
    # Shorter fragments end before the padding.
    done = terminated | fragments["truncated"] | rows.last(mask) | ~mask
    reward, discount, last = returns.n_step(
        algorithm.clipped(fragments["reward"]),
        *(terminated, done, config.discount, config.n_step),
    )
    following = tf.nest.map_structure(
        lambda x: tf.gather(x, last, batch_dims=1), fragments["next_observation"]
    )
    items = {
        "observation": observation,
        "action": fragments["action"],
        "reward": reward,
        "discount": discount,
        "next_observation": following,
        "weight": tf.ones_like(reward),
        "index": tf.fill(tf.shape(mask), tf.constant(-1, tf.int64)),
    }
    items = tf.nest.map_structure(lambda x: tf.boolean_mask(x, mask), items)
    items["action"] = algorithm.memory_action(items["action"])
    algorithm.train_on(items)


@learn_from_memory.register
def _(algorithm: off_policy.OffPolicy) -> None:
    size, needed = int(algorithm.memory.size), algorithm.config.batch_size
    if size < needed:
        raise ValueError(
            f"the memory holds {size} transitions, an update needs {needed}; observe "
            "more first."
        )
    items = algorithm.draw()
    algorithm.memory.update(items["index"], algorithm.train_on(items))


@imitation.register
def _(algorithm: sac.SAC, items):
    items = rows.merge_time(items)
    action = algorithm.memory_action(items["action"])
    if action.dtype.is_floating:
        action = tf.atanh(tf.clip_by_value(action, -boxes.INSIDE, boxes.INSIDE))

    def loss():
        seen = algorithm.observations(items["observation"])
        return -tf.reduce_mean(algorithm.distribution(seen).log_prob(action)), {}

    policy = algorithm.policy
    return modes.learning(loss, policy)()[0], policy.trainable_variables


@imitation.register
def _(algorithm: td3.TD3, items):
    items = rows.merge_time(items)

    def loss():
        ours = algorithm.best(algorithm.observations(items["observation"]))
        difference = ours - algorithm.memory_action(items["action"])
        return tf.reduce_mean(difference**2), {}

    policy = algorithm.policy
    return modes.learning(loss, policy)()[0], policy.trainable_variables
