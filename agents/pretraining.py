"""Learning from recordings before acting: imitation, and a filled memory.

Both functions read what a recorder has saved:

    recorder = recordings.Recorder(env.observation_space, env.action_space)
    ...                                     # recorder.record(...) after every step
    recorder.save("expert.npz")
    losses = pretraining.imitate(agent, "expert.npz")
    pretraining.fill(agent, "expert.npz")
"""

import pathlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agents import offline
from agents.tools import checks, errors, recordings


def imitate(
    agent: Any,
    recording: str | pathlib.Path,
    updates: int = 1_000,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> np.ndarray:
    """Train the policy to choose the recorded actions, by behavioral cloning.

    Statistics for normalization learn from the recording first. Recurrent policies are
    trained on pieces of `chunk_length` or `unroll_length` steps, each from the initial
    state.

    Args:
      agent: Agent with the policy to train.
      recording: File that a `Recorder` wrote.
      updates: Number of Adam steps.
      batch_size: Recorded steps, or pieces, per update.
      learning_rate: Learning rate of Adam.
      seed: Seed of the choice of batches.

    Returns:
      Losses `[updates]`: mean negative log-probabilities of the recorded actions; for
      deterministic policies, mean squared differences of actions between -1 and 1.

    Raises:
      RecordingError: if it does not fit, or is too short.
      ValueError: if `updates` or `batch_size` is not a positive integer.
      NotImplementedError: for algorithms without a policy; use `fill`.
    """
    checks.positive_integer("updates", updates, ValueError)
    checks.positive_integer("batch_size", batch_size, ValueError)
    algorithm = agent.algorithm
    data = _read(agent, recording)
    steps = data["reward"].shape[1]
    settings, length = agent.config.algorithm, 1
    if getattr(getattr(settings, "network", None), "recurrent", False):
        length = getattr(settings, "chunk_length", settings.unroll_length)
    count = steps // length
    if not count:
        raise recordings.RecordingError(
            f"{recording} has {steps} steps, but {length} are needed."
        )
    begin = tf.nest.map_structure(lambda x: x[:, :length], data)
    begin = _take(_pieces(_seen(agent, begin), length), np.arange(1))
    _, variables = offline.imitation(algorithm, begin)  # Before learning.
    data = _seen(agent, data, learn=True)
    everything = tf.nest.map_structure(tf.constant, data["observation"])
    algorithm.observations.update(everything, tf.ones([1, steps], tf.bool))
    pieces = _pieces(data, length)
    optimizer = keras.optimizers.Adam(learning_rate)
    optimizer.build(variables)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(items):
        with tf.GradientTape() as tape:
            loss, _ = offline.imitation(algorithm, items)
        gradients = tape.gradient(loss, [x.value for x in variables])
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    random = np.random.default_rng(seed)
    size = min(batch_size, count)
    chosen = (random.choice(count, size, replace=False) for _ in range(updates))
    losses = [step(_take(pieces, rows)).numpy() for rows in chosen]
    if hasattr(algorithm, "target_policy"):  # Critics learn from its actions.
        targets = algorithm.target_policy.variables
        for target, variable in zip(targets, algorithm.policy.variables, strict=True):
            target.assign(variable)
    return np.array(losses)


def fill(agent: Any, recording: str | pathlib.Path) -> int:
    """Add a recording to the replay memory of an agent, which must not be acting.

    Episodes are divided among the rows of the memory. Only statistics for normalization
    learn from them, and they do not count as steps. Stages of `preprocessing` learn
    from the whole recording before they preprocess it for the memory.

    Returns:
      Number of transitions in the recording; the memory keeps the latest ones.

    Raises:
      RecordingError: if it does not fit.
      ValueError: for algorithms without a replay memory.
    """
    algorithm = agent.algorithm
    if not hasattr(algorithm, "remember"):
        raise ValueError(
            f"{agent.config.algorithm.type} has no replay memory to fill; use imitate, "
            "or dqn, sac or td3."
        )
    data = _seen(agent, _read(agent, recording), learn=True)
    data = tf.nest.map_structure(lambda x: x[0], data)
    data["row"] = _divide(data["first"], agent.num_agents)

    def put(items):
        items = tf.nest.map_structure(lambda x: x[None], items)
        row = items["row"]
        tf.cond(items["first"][0], lambda: algorithm.memory.begin(row), lambda: None)
        algorithm.remember(
            row,
            items["observation"],
            algorithm.memory_action(items["action"]),
            *(items[name] for name in recordings.FLAGS),
            items["next_observation"],
        )
        return ()

    @tf.function(autograph=False)
    def put_all(data):
        steps = tf.shape(data["reward"])[0]

        def body(index):
            put(tf.nest.map_structure(lambda x: x[index], data))
            return (index + 1,)

        tf.while_loop(lambda index: index < steps, body, (0,), parallel_iterations=1)
        algorithm.memory.begin(tf.range(agent.num_agents))

    put_all(tf.nest.map_structure(tf.constant, data))
    return len(data["reward"])


def _divide(first: np.ndarray, rows: int) -> np.ndarray:
    """Return a row int32 `[T]` for each step; each episode gets the shortest row."""
    starts = np.flatnonzero(first)
    lengths = np.diff([*starts, len(first)])
    total, chosen = np.zeros(rows, int), np.zeros(len(starts), np.int32)
    for episode, length in enumerate(lengths):
        chosen[episode] = np.argmin(total)
        total[chosen[episode]] += length
    return np.repeat(chosen, lengths)


def _read(agent: Any, recording: str | pathlib.Path) -> dict[str, Any]:
    """Load a recording as one fragment `[1, T, ...]`, and mark its `first` steps."""
    data = recordings.load(recording, agent.observation_space, agent.action_space)
    steps = len(data["reward"])
    if not steps:
        raise recordings.RecordingError(f"recording {recording} has no steps.")
    try:
        agent.require_allowed(data)
    except errors.Mistake as error:
        raise recordings.RecordingError(f"recording {recording}: {error}") from None
    data, _ = recordings.fragments(data, np.zeros(steps, int))
    first = np.ones_like(data["truncated"])
    first[:, 1:] = (data["terminated"] | data["truncated"])[:, :-1]
    return {**data, "first": first}


def _seen(agent: Any, data: dict[str, Any], learn: bool = False) -> dict[str, Any]:
    """Preprocess a recording, optionally after statistics have learned from it."""
    preprocessing = getattr(agent.algorithm, "preprocessing", None)
    if preprocessing is None:
        return data

    @tf.function(autograph=False)
    def see(data):
        if learn:
            preprocessing.learn(data, tf.ones_like(data["first"]))
        return preprocessing.see(data)

    seen = see(tf.nest.map_structure(tf.constant, data))
    return tf.nest.map_structure(lambda x: x.numpy(), seen)


def _pieces(data: dict[str, Any], length: int) -> dict[str, Any]:
    """Cut the inputs of imitation into pieces `[B, length, ...]`."""

    def cut(x):
        count = x.shape[1] // length
        return x[0, : count * length].reshape(count, length, *x.shape[2:])

    names = ("observation", "action", "first")
    return tf.nest.map_structure(cut, {name: data[name] for name in names})


def _take(pieces: Any, rows: np.ndarray) -> Any:
    return tf.nest.map_structure(lambda x: tf.constant(x[rows]), pieces)
