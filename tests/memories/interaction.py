"""Replay memories and what they are filled with."""

import dataclasses

import numpy as np
import tensorflow as tf

from agents import memories

NUMBER = tf.TensorSpec([], tf.float32)
INTEGER = tf.TensorSpec([], tf.int64)
SEED = tf.constant([1, 2])


def make(rows=1, capacity=20, observation=NUMBER, action=INTEGER, **options):
    return memories.Replay(observation, action, rows, capacity, **options)


def rows(*indices):
    return tf.constant(indices, tf.int32)


def step(replay, row, number, end=None, reward=None):
    """One step from observation `number` to `number + 1`, with that action, reward."""
    replay.append(
        rows(row),
        tf.constant([number], tf.float32),
        tf.constant([number], tf.int64),
        tf.constant([number if reward is None else reward], tf.float32),
        tf.constant([end in ("terminated", "both")]),
        tf.constant([end in ("truncated", "both")]),
        tf.constant([number + 1], tf.float32),
    )


def drawn(replay, count=500, seed=SEED):
    """Items by observation: action, reward, discount, next observation."""
    if not replay.size.numpy():
        return {}
    items = {key: x.numpy() for key, x in replay.sample(count, seed).items()}
    keys = "action", "reward", "discount", "next_observation"
    values = zip(*[items[key].tolist() for key in keys], strict=True)
    result = {}
    for observation, value in zip(items["observation"].tolist(), values, strict=True):
        value = tuple(np.round(value, 4).tolist())
        assert result.setdefault(observation, value) == value
    assert len(result) == replay.size.numpy()
    return result


@dataclasses.dataclass
class Row:
    """Log of all entries of one row since the beginning."""

    length: int
    frames: int
    entries: list = dataclasses.field(default_factory=list)
    episode: list = dataclasses.field(default_factory=list)
    next: int = 0

    def begin(self):
        if self.episode:  # Cut off, behind the last observation.
            self.next += 1
        self.episode = []

    def append(self, step):
        if not self.episode:
            self.next += self.frames - 1
        del self.entries[self.next :]
        self.entries += [None] * (self.next - len(self.entries)) + [step]
        step["episode"], step["position"] = self.episode, len(self.episode)
        self.episode.append(step)
        self.next += 1
        if step["terminated"] or step["truncated"]:
            self.next += 1
            self.episode = []

    def items(self, n_step, discount):
        """Transitions that can be drawn, by number of the entry."""
        result = {}
        for number, step in enumerate(self.entries):
            oldest_frame = number - self.frames + 1
            if step is None or oldest_frame <= self.next - self.length:
                continue
            window = step["episode"][step["position"] :][:n_step]
            last = window[-1]
            if len(window) < n_step and not (last["terminated"] or last["truncated"]):
                continue
            reward = sum(discount**k * x["reward"] for k, x in enumerate(window))
            result[number] = {
                "observation": step["observation"],
                "action": step["action"],
                "reward": reward,
                "discount": 0 if last["terminated"] else discount ** len(window),
                "next_observation": last["next_observation"],
            }
        return result


class Interaction:
    """Random steps of random rows, with frames as padding that are random too."""

    def __init__(self, num_rows, stack, seed):
        self.generator = np.random.default_rng(seed)
        self.num_rows, self.stack = num_rows, stack
        self.observations = [None] * num_rows

    def observe(self, previous=None):
        if self.stack:
            new = self.generator.integers(0, 256, [self.stack, 3, 2], np.uint8)
            return new if previous is None else np.stack([*previous[1:], new[-1]])
        numbers = self.generator.normal(size=3).astype("f4")
        flag = self.generator.integers(0, 2) > 0
        return {"a": numbers[:2], "b": (numbers[2], flag)}

    def step(self, subset=True):
        """Rows that begin, rows that act, and their steps."""
        generator = self.generator
        begin = [x is None for x in self.observations]
        if generator.random() < 0.04:
            begin = [x or generator.random() < 0.5 for x in begin]
        begin = np.flatnonzero(begin)
        for row in begin:
            self.observations[row] = self.observe()
        count = generator.integers(0, self.num_rows + 1) if subset else self.num_rows
        act = generator.permutation(self.num_rows)[:count]
        steps = []
        for row in act:
            observation = self.observations[row]
            following = self.observe(observation)
            step = {
                "observation": observation,
                "action": generator.integers(0, 5),
                "reward": np.float32(generator.normal()),
                "terminated": generator.random() < 0.1,
                "truncated": generator.random() < 0.1,
                "next_observation": following,
            }
            done = step["terminated"] or step["truncated"]
            self.observations[row] = None if done else following
            steps.append(step)
        return begin, act, steps

    @property
    def spec(self):
        if self.stack:
            return tf.TensorSpec([self.stack, 3, 2], tf.uint8)
        return {"a": tf.TensorSpec([2]), "b": (NUMBER, tf.TensorSpec([], tf.bool))}

    def batch(self, steps):
        """Tensors `[K, ...]` of steps, also of none."""
        specs = {
            "observation": self.spec,
            "action": INTEGER,
            "reward": NUMBER,
            "terminated": tf.TensorSpec([], tf.bool),
            "truncated": tf.TensorSpec([], tf.bool),
            "next_observation": self.spec,
        }
        if not steps:
            return tf.nest.map_structure(
                lambda x: tf.zeros([0, *x.shape], x.dtype), specs
            )
        return tf.nest.map_structure(
            lambda spec, *x: tf.constant(np.stack(x), spec.dtype), specs, *steps
        )


def functions(replay, spec, mode, count=None):
    """Begin and append, eagerly or as graphs of any number of rows."""
    if mode == "eager":
        return replay.begin, lambda rows, batch: replay.append(rows, **batch)
    index = tf.TensorSpec([count], tf.int32)
    flag, number = tf.TensorSpec([], tf.bool), tf.TensorSpec([])
    batch = {
        "observation": spec,
        "action": INTEGER,
        "reward": number,
        "terminated": flag,
        "truncated": flag,
        "next_observation": spec,
    }
    batch = tf.nest.map_structure(
        lambda x: tf.TensorSpec([count, *x.shape], x.dtype), batch
    )

    def begin(selected):
        replay.begin(tf.boolean_mask(tf.range(tf.size(selected)), selected))

    def append(rows, batch):
        return replay.append(rows, **batch)

    if mode == "graph":
        begin = tf.function(replay.begin, [tf.TensorSpec([None], tf.int32)])
        return begin, tf.function(append, [index, batch], autograph=False)
    begin = tf.function(
        begin, [tf.TensorSpec([count], tf.bool)], autograph=False, jit_compile=True
    )
    return begin, tf.function(append, [index, batch], autograph=False, jit_compile=True)


def prioritized(n_step=1, capacity=4, alpha=1.0, num_rows=1):
    selector = memories.Prioritized(alpha=alpha, epsilon=0.5)
    return make(num_rows, capacity, selector=selector, n_step=n_step)
