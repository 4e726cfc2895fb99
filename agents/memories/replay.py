"""Memory of transitions, each of which can be drawn many times."""

import logging
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from agents.tools import arrays, conditional, config, errors, placement, spaces

SELECTORS = {
    "prioritized": "agents.memories.prioritized:Prioritized",
    "uniform": "agents.memories.uniform:Uniform",
}
"""Import paths of selectors by the `type` of their declaration."""


class ReplayTooLarge(errors.Mistake):
    """Replay memory that does not fit into the free memory, in one line."""


class Replay(tf.Module):
    """Memory of the last transitions of every row, drawn by a selector.

        replay.begin(rows)                 # episodes begin, even if none ended
        replay.append(rows, ...)           # after every step
        items = replay.sample(count, seed)
        replay.update(items["index"], td_errors)

    Its transitions can be moved to a larger memory, see `transfer`.

    Every row has a ring of entries in order of time: an observation with the step that
    was taken there. The next observation of a step is that of the next entry, and the
    last observation of an episode is an entry without a step. For stacked observations,
    an entry stores the last frame; the older frames of the first step of an episode are
    preceding entries without a step.

    The selector contains the entries whose `n_step` window is complete: that many steps
    follow, or the episode ended. An entry leaves before it, or an older frame that it
    needs, is overwritten. Running episodes within the capacity are stored in full;
    every end of an episode takes the place of one transition, or of `stack` if stacked.

    Attributes:
      num_bytes: Allocated memory.
      persistent: All variables, for `tf.train.Checkpoint`.
    """

    topology = "replaying"
    whole_episodes = False

    def __init__(
        self,
        observation: Any,
        action: Any,
        rows: int,
        capacity: int,
        selector: Any = "uniform",
        n_step: int = 1,
        discount: float = 0.99,
        stack: int | None = None,
    ) -> None:
        """Allocate for the last `capacity` transitions of all rows together.

        Args:
          observation: Structure of `tf.TensorSpec` of one observation.
          action: Structure of `tf.TensorSpec` of one action.
          rows: Number of agents.
          capacity: Transitions; every row stores an equal number, rounded up, and at
            least two.
          selector: Name of one of `SELECTORS`; mapping of its arguments with the name
            as `type`; or a selector that no other memory uses.
          n_step: Number of rewards to sum up.
          discount: Discount of rewards per step.
          stack: Frames of observations `[stack, ...]`, oldest first; none if unstacked.

        Raises:
          ReplayTooLarge: if there is too little free memory; nothing is allocated.
        """
        super().__init__()
        selector = _selector(selector)
        self.num_bytes = replay_bytes(
            observation, action, rows, capacity, selector, n_step, stack
        )
        if self.num_bytes > (free := placement.free_bytes()):
            raise ReplayTooLarge(
                f"a replay memory of {capacity} transitions needs {self.num_bytes} "
                f"bytes, but {free} are free; reduce its capacity."
            )
        size = self.num_bytes / 1e6
        logging.getLogger(__name__).info("replay memory of %.1f MB", size)
        self._rows, self._n_step = rows, n_step
        self._stack, self._frames = stack, stack or 1
        self._structure = spaces.transform(lambda x: None, observation)
        self._discounts = np.float32(discount) ** np.arange(n_step + 1, dtype="f4")
        self._length = _row_length(rows, capacity, n_step, stack)
        entries = rows * self._length
        self._observation, self._step = _packings(observation, action, stack)
        self._observations = _allocate(self._observation, entries)
        self._steps = _allocate(self._step, entries)
        # State of each row: number of entries so far, which is the entry of the next
        # step, and steps of its running episode that are stored with all frames.
        self._state = tf.Variable(tf.zeros([rows, 2], tf.int64), trainable=False)
        # Number of entries taken so far from the row that extends each row.
        self._source = tf.Variable(tf.zeros([rows], tf.int64), trainable=False)
        self._selector = selector
        selector.build(entries)
        self.persistent = {
            "observations": self._observations,
            "steps": self._steps,
            "state": self._state,
            "source": self._source,
            "selector": selector.persistent,
        }

    @property
    def size(self) -> tf.Tensor:
        """Number of transitions that can be drawn now, int32."""
        return self._selector.size.read_value()

    def begin(self, rows: tf.Tensor) -> None:
        """Begin episodes in rows, int32 `[K]`, even if the last ones did not end."""
        head, steps = tf.unstack(tf.gather(self._state, rows), axis=1)
        cut = steps > 0  # The last observation remains, because windows end there.
        old = self._slots(rows, head + self._frames, cut)
        self._selector.change(NOTHING, old)
        head += tf.cast(cut, tf.int64)
        assign([self._state], rows, [tf.stack([head, tf.zeros_like(head)], 1)])

    def append(
        self,
        rows: tf.Tensor,
        observation: Any,
        action: Any,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> tf.Tensor:
        """Store one step of rows, int32 `[K]`; all other arguments are `[K, ...]`.

        Returns:
          Indices of newly complete transitions, int64 `[K * n_step]`: for each row in
          turn the one that began with this step, with the step before and so on, -1 for
          those that are not complete.
        """
        head, steps = tf.unstack(tf.gather(self._state, rows), axis=1)
        if self._stack:
            first = steps == 0
            head = tf.where(first, head + self._frames - 1, head)
            leaves = spaces.flatten(observation)
            begins = tf.reduce_any(first)
            conditional.when(begins, self._append_older, rows, head, *leaves)
            observation, next_observation = spaces.transform(
                lambda x: x[:, -1], (observation, next_observation)
            )
        both = tf.nest.map_structure(
            lambda *x: tf.concat(x, 0), observation, next_observation
        )
        slots = self._slots(tf.tile(rows, [2]), tf.concat([head, head + 1], 0))
        assign(self._observations, slots, self._observation.pack(both))
        step = _step(action, reward, terminated, truncated)
        assign(self._steps, self._slots(rows, head), self._step.pack(step))
        done = terminated | truncated
        index = self._update_members(rows, head, steps, done)
        head += tf.where(done, tf.constant(2, tf.int64), 1)
        steps = tf.where(done, tf.zeros_like(steps), steps + 1)
        assign([self._state], rows, [tf.stack([head, steps], 1)])
        return index

    def sample(
        self, count: int, seed: tf.Tensor, beta: float | tf.Tensor = 0.4
    ) -> dict[str, Any]:
        """Draw transitions with replacement.

        Args:
          count: Number of transitions, `B`.
          seed: Seed of the random numbers, int32 `[2]`.
          beta: Exponent of importance weights, which are 1 for uniform selection.

        Returns:
          Dict of `[B, ...]`: that of `get`, and `weight`, at most 1.

        Raises:
          tf.errors.InvalidArgumentError: if the memory is empty, but not under XLA.
        """
        tf.raw_ops.Assert(
            condition=self.size > 0, data=["The replay memory holds no transition."]
        )
        slots, probability = self._selector.sample(count, seed)
        rows, slot = tf.cast(slots // self._length, tf.int64), slots % self._length
        head = tf.gather(self._state, rows)[:, 0]
        entry = head - 1 - (head - 1 - tf.cast(slot, tf.int64)) % self._length
        items = self.get(entry * self._rows + rows)
        return {**items, "weight": _weights(probability, self.size, beta)}

    def get(self, index: tf.Tensor) -> dict[str, Any]:
        """Return transitions of an index, int64 `[B]`; undefined for those not stored.

        Returns:
          Dict of `[B, ...]`: `observation`; `action`; `reward`, the discounted sum of
          up to `n_step` rewards of the episode; `discount` of the value after these,
          zero if the episode terminated; `next_observation` after these; and `index`.
        """
        rows, entry = index % self._rows, index // self._rows
        steps, alive = self._window(rows, entry)
        terminated = tf.cast(steps["terminated"], tf.float32)
        length = tf.cast(tf.reduce_sum(alive, 1), tf.int32)
        ongoing = 1 - tf.reduce_max(alive * terminated, 1)
        return {
            "observation": self._observation_of(rows, entry),
            "action": spaces.transform(lambda x: x[:, 0], steps["action"]),
            "reward": tf.linalg.matvec(alive * steps["reward"], self._discounts[:-1]),
            "discount": tf.gather(self._discounts, length) * ongoing,
            "next_observation": self._observation_of(
                rows, entry + tf.cast(length, tf.int64)
            ),
            "index": index,
        }

    def update(self, index: tf.Tensor, td_error: tf.Tensor) -> None:
        """Pass the errors `[B]` of transitions that are still stored to the selector.

        The index -1 stands for no transition.
        """
        rows, entry = index % self._rows, index // self._rows
        head = tf.gather(self._state, rows)[:, 0]
        present = (index >= 0) & (entry > head - self._length)
        self._selector.update(self._slots(rows, entry, present), td_error)

    def _append_older(self, rows: tf.Tensor, head: tf.Tensor, *leaves) -> None:
        """Write the older frames of leaves of observations `[K, stack, ...]`.

        Rows in the middle of an episode already contain these frames. The frames move
        the next step to a later entry, so members further ahead leave.
        """
        past = tf.expand_dims(head, 1) - np.arange(self._frames - 1, 0, -1)
        slots = tf.reshape(self._slots(tf.expand_dims(rows, 1), past), [-1])
        frames = spaces.unflatten(self._structure, [x[:, :-1] for x in leaves])
        packed = self._observation.pack(frames)
        shapes = [[-1, *spec.shape] for spec in self._observation.specs]
        values = [tf.reshape(x, s) for x, s in zip(packed, shapes, strict=True)]
        assign(self._observations, slots, values)
        following = tf.expand_dims(head, 1) + np.arange(1, self._frames)
        old = self._slots(tf.expand_dims(rows, 1), following)
        self._selector.change(NOTHING, tf.reshape(old, [-1]))

    def _update_members(
        self, rows: tf.Tensor, head: tf.Tensor, steps: tf.Tensor, done: tf.Tensor
    ) -> tf.Tensor:
        """Insert entries that this step completes; remove those the next one breaks.

        The frames of the next step, at entry `next`, occupy entries `[next, next +
        stack)`. No member may need the old content of those. Returns the indices of
        inserted transitions, -1 for none, `[K * n_step]`.
        """
        rows, head, done = rows[:, tf.newaxis], head[:, tf.newaxis], done[:, tf.newaxis]
        past = np.arange(self._n_step)
        complete = (past <= steps[:, tf.newaxis]) & ((past == past[-1]) | done)
        new = self._slots(rows, head - past, complete)
        index = (head - past) * self._rows + tf.cast(rows, tf.int64)
        ahead = np.arange(2)  # One more if a last observation follows.
        old = self._slots(rows, head + self._frames + ahead, done | (ahead == 0))
        self._selector.change(tf.reshape(new, [-1]), tf.reshape(old, [-1]))
        return tf.reshape(tf.where(complete, index, -1), [-1])

    def _window(self, rows: tf.Tensor, entry: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Return steps `[B, n_step, ...]` from entries `[B]` on, and their weights.

        The weight is one for steps of the first step's episode, zero after its end.
        """
        steps = self._gather(self._step, self._steps, rows, entry, range(self._n_step))
        alive = tf.cast(~(steps["terminated"] | steps["truncated"]), tf.float32)
        return steps, tf.math.cumprod(alive, 1, exclusive=True)

    def _observation_of(self, rows: tf.Tensor, entry: tf.Tensor) -> Any:
        """Return the observations `[B, ...]` at entries `[B]`."""
        past = range(1 - self._frames, 1)
        frames = self._gather(self._observation, self._observations, rows, entry, past)
        if self._stack:
            return frames
        return spaces.transform(lambda x: x[:, 0], frames)

    def _gather(self, structure, variables, rows, entry, offsets) -> Any:
        """Gather leaves `[B, len(offsets), ...]` of entries around the given ones."""
        entries = tf.expand_dims(entry, 1) + np.array(offsets)
        slots = self._slots(tf.expand_dims(rows, 1), entries)
        return structure.unpack([tf.gather(x, slots) for x in variables])

    def _slots(
        self, rows: tf.Tensor, entry: tf.Tensor, where: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Convert entries int64 to indices int32 in variables, masked by `where`."""
        slots = tf.cast(entry % self._length, tf.int32)
        slots += tf.cast(rows, tf.int32) * self._length
        if where is None:
            return slots
        return tf.where(where, slots, self._rows * self._length)


def _selector(declared: Any) -> Any:
    """Create a selector from its declaration, or return a given one."""
    if not isinstance(declared, str | dict):
        return declared
    options = config.declaration(declared, "a selector")
    return config.imported(SELECTORS[options.pop("type")])(**options)


NOTHING = np.zeros([0], np.int32)
"""Slots of no entry."""


def replay_bytes(
    observation: Any,
    action: Any,
    rows: int,
    capacity: int,
    selector: Any,
    n_step: int = 1,
    stack: int | None = None,
) -> int:
    """Return the bytes that a `Replay` with these arguments would allocate."""
    entries = rows * _row_length(rows, capacity, n_step, stack)
    specs = [x for part in _packings(observation, action, stack) for x in part.specs]
    entry = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs)
    return entries * entry + 24 * rows + selector.num_bytes(entries)


def _row_length(rows: int, capacity: int, n_step: int, stack: int | None) -> int:
    """Return the entries of a row that hold its share of transitions."""
    for name, value in {"rows": rows, "capacity": capacity, "n_step": n_step}.items():
        if value < 1:
            raise ValueError(f"{name} must be positive, got {value}.")
    share = -(-capacity // rows)
    if n_step > share:
        raise ValueError(
            f"n_step {n_step} is longer than the {share} transitions of a row; "
            "increase the capacity."
        )
    return max(share, 2) + (stack or 1) + n_step - 1


def _packings(observation, action, stack) -> tuple[arrays.Packing, arrays.Packing]:
    """Create the packings of an entry's observation or frame, and of its step."""
    if stack is not None:
        specs = spaces.flatten(observation)
        plain = all(x.shape.rank < 2 for x in specs)  # No frames, by chance so long.
        if plain or stack < 1 or any(x.shape[:1] != [stack] for x in specs):
            raise ValueError(
                f"expected stacks of {stack} frames or vectors, got {observation}."
            )
        observation = spaces.transform(
            lambda x: tf.TensorSpec(x.shape[1:], x.dtype), observation
        )
    flag = tf.TensorSpec([], tf.bool)
    step = _step(action, tf.TensorSpec([]), flag, flag)
    return arrays.Packing(observation), arrays.Packing(step)


def _step(action, reward, terminated, truncated) -> dict[str, Any]:
    return {
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
    }


def _allocate(structure: arrays.Packing, entries: int) -> list[tf.Variable]:
    return [
        tf.Variable(tf.zeros([entries, *spec.shape], spec.dtype), trainable=False)
        for spec in structure.specs
    ]


def assign(
    variables: Iterable[tf.Variable], indices: tf.Tensor, values: list[tf.Tensor]
) -> None:
    """Write `[M, ...]` to indices `[M]`; much faster for frames than `scatter_nd`."""
    for variable, value in zip(variables, values, strict=True):
        variable.scatter_update(tf.IndexedSlices(value, indices))


def _weights(probability: tf.Tensor, size: tf.Tensor, beta: Any) -> tf.Tensor:
    """Return importance weights float32 `[B]`, relative to the largest of the batch."""
    weights = tf.cast(size, tf.float64) * probability
    weights = weights ** -tf.cast(beta, tf.float64)
    return tf.cast(weights / tf.reduce_max(weights), tf.float32)
