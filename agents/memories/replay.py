"""Memory of transitions, from which any can be drawn many times."""

import logging
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from agents.memories import prioritized, room, uniform
from agents.tools import conditional, packing, spaces


class ReplayTooLarge(ValueError):
    """A replay memory that does not fit into the free memory, in one line."""


class Replay(tf.Module):
    """The last transitions of every row; which ones are drawn, a selector decides.

        replay.begin(rows)                 # episodes begin, also if none ended
        replay.append(rows, ...)           # after every step
        items = replay.sample(count, seed)
        replay.update(items["index"], td_errors)

    What was appended here can be moved to a larger memory, in another process too:

        chunk = replay.take(since)         # at first since zeros
        larger.extend(chunk, first_row)
        since = chunk["state"][:, 0]

    Every row has a ring of entries in the order of time: an observation, and what was
    done and happened there. So the next observation of a step is that of the next
    entry, and the last observation of an episode is an entry without a step. Of stacked
    observations an entry has the last frame; the older ones of the first step of an
    episode are entries without a step before it.

    The selector has those entries whose `n_step` window is complete: as many steps
    follow, or the episode ended. An entry leaves before it, or an older frame that it
    needs, is overwritten. Running episodes of the capacity are held in full; every end
    of one takes the place of one transition, with frames that of `stack`.

    Attributes:
      num_bytes: Memory that is taken.
      persistent: Everything, for `tf.train.Checkpoint`.
    """

    def __init__(
        self,
        observation: Any,
        action: Any,
        rows: int,
        capacity: int,
        selector: uniform.Uniform | prioritized.Prioritized | None = None,
        n_step: int = 1,
        discount: float = 0.99,
        stack: int | None = None,
    ) -> None:
        """Allocate for the last `capacity` transitions of all rows together.

        Args:
          observation: Structure of `tf.TensorSpec` of one observation.
          action: Structure of `tf.TensorSpec` of one action.
          rows: Number of agents.
          capacity: Transitions; every row holds the same number, rounded up, and two
            at least.
          selector: Of this memory only; by default `Uniform`.
          n_step: Rewards that are summed up.
          discount: Of rewards, per step.
          stack: All observations are `[stack, ...]`, the last frames, oldest first.

        Raises:
          ReplayTooLarge: before it allocates more than there is.
        """
        super().__init__()
        selector = uniform.Uniform() if selector is None else selector
        self.num_bytes = replay_bytes(
            observation, action, rows, capacity, selector, n_step, stack
        )
        if self.num_bytes > (free := room.free_bytes()):
            raise ReplayTooLarge(
                f"a replay memory of {capacity} transitions needs {self.num_bytes} "
                f"bytes, but {free} are free; reduce its capacity."
            )
        size = self.num_bytes / 1e9
        logging.getLogger(__name__).info("replay memory of %.2f GB", size)
        self._rows, self._n_step = rows, n_step
        self._stack, self._frames = stack, stack or 1
        self._structure = spaces.transform(lambda x: None, observation)
        self._discounts = np.float32(discount) ** np.arange(n_step + 1, dtype="f4")
        self._length = _row_length(rows, capacity, n_step, stack)
        entries = rows * self._length
        self._observation, self._step = _packings(observation, action, stack)
        self._observations = _allocate(self._observation, entries)
        self._steps = _allocate(self._step, entries)
        # Of each row: entries so far, at which the next step will be, and the steps of
        # its running episode that are here with all of their frames.
        self._state = tf.Variable(tf.zeros([rows, 2], tf.int64), trainable=False)
        # Of each row: entries so far of the row that it is extended by.
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
        """Episodes begin in rows, int32 `[K]`, also where none ended."""
        head, steps = tf.unstack(tf.gather(self._state, rows), axis=1)
        cut = steps > 0  # The last observation remains, since windows end there.
        old = self._slots(rows, head + self._frames, cut)
        self._selector.change(_NOTHING, old)
        head += tf.cast(cut, tf.int64)
        _assign([self._state], rows, [tf.stack([head, tf.zeros_like(head)], 1)])

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
        """Remember one step of rows, int32 `[K]`; all others are `[K, ...]`.

        Returns:
          Index of the transitions that are complete with it, int64 `[K * n_step]`: of
          each row in turn those that began with this step, the one before and so on,
          -1 for those that are not.
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
        _assign(self._observations, slots, self._observation.pack(both))
        step = _step(action, reward, terminated, truncated)
        _assign(self._steps, self._slots(rows, head), self._step.pack(step))
        done = terminated | truncated
        index = self._update_members(rows, head, steps, done)
        head += tf.where(done, tf.constant(2, tf.int64), 1)
        steps = tf.where(done, tf.zeros_like(steps), steps + 1)
        _assign([self._state], rows, [tf.stack([head, steps], 1)])
        return index

    def sample(
        self, count: int, seed: tf.Tensor, beta: float | tf.Tensor = 0.4
    ) -> dict[str, Any]:
        """Draw transitions with replacement.

        Args:
          count: Number of transitions, `B`.
          seed: Of the random numbers, int32 `[2]`.
          beta: Exponent of importance weights, without effect on uniform ones.

        Returns:
          Dict of `[B, ...]`: what `get` returns, and `weight`, 1 at most.

        Raises:
          tf.errors.InvalidArgumentError: if there are none, but not under XLA.
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
        """Transitions of an index, int64 `[B]`; without meaning for those not here.

        Returns:
          Dict of `[B, ...]`: `observation`; `action`; `reward`, the discounted sum of
          up to `n_step` of the same episode; `discount` of the value of what follows
          them, zero where the episode terminated; `next_observation`, which follows
          them; and `index`.
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
        """Tell the selector the errors `[B]` of transitions, unless they are gone.

        The index -1 stands for none.
        """
        rows, entry = index % self._rows, index // self._rows
        head = tf.gather(self._state, rows)[:, 0]
        present = (index >= 0) & (entry > head - self._length)
        self._selector.update(self._slots(rows, entry, present), td_error)

    def take(self, since: tf.Tensor) -> dict[str, tf.Tensor]:
        """All that was appended after there were so many entries, for `extend`.

        Args:
          since: Entries of each row at the last time, int64 `[rows]`, at first zero;
            so are more than there are, which another memory had.

        Returns:
          Dict of `begin` `[rows]`, the first entry that is included, later than asked
          for where that is overwritten; `state` `[rows, 2]`, of which the first column
          is for the next time; `index` `[P]` of the transitions that became complete
          since then and are still here, and their `priority` float64 `[P]`; and of the
          entries of all rows in turn what is stored, `observations_i` and `steps_i`
          `[M, ...]`.
        """
        state = self._state.read_value()
        head, steps = tf.unstack(state, axis=1)
        oldest = head - self._length + 1
        begin = tf.maximum(tf.where(since > head, tf.zeros_like(head), since), oldest)
        slots = self._slots(*_entries(begin, head, steps))
        # Windows that reach until then, or begin later.
        rows, entry = _ranges(tf.maximum(begin - self._n_step + 1, oldest), head)
        priority = self._selector.priorities(self._slots(rows, entry))
        _, alive = self._window(rows, entry)
        end = entry + tf.cast(tf.reduce_sum(alive, 1), tf.int64)
        new = (priority > 0) & (end > tf.gather(begin, rows))
        index = entry * self._rows + tf.cast(rows, tf.int64)
        return {
            "begin": begin,
            "state": state,
            "index": tf.boolean_mask(index, new),
            "priority": tf.boolean_mask(priority, new),
            **{name: tf.gather(x, slots) for name, x in self._stored().items()},
        }

    def extend(self, chunk: dict[str, Any], first_row: int | tf.Tensor = 0) -> None:
        """Go on with what was taken from another memory, row by row.

        Afterwards these rows have the transitions that they would have if all that was
        appended there had been appended here, with the priorities that they had there.
        Where a chunk does not follow the one before, since one was lost or the other
        memory is a new one, that row goes on as if it had been cut off: it keeps what
        it has, and transitions of which a part is missing are left out. The same is
        true of a memory that is new itself.

        Args:
          chunk: Tensors or arrays of `take`, of a memory for the same observations,
            actions, `n_step` and `stack`. Capacity and number of rows may differ.
          first_row: Row that goes on with the first one of the other memory.

        Raises:
          tf.errors.InvalidArgumentError: for more entries than a row has room for.
        """
        chunk = {name: tf.convert_to_tensor(x) for name, x in chunk.items()}
        begin, (end, steps) = chunk["begin"], tf.unstack(chunk["state"], axis=1)
        size = tf.size(begin)
        targets = first_row + tf.range(size)
        head, held = tf.unstack(tf.gather(self._state, targets), axis=1)
        follows = tf.gather(self._source, targets) == begin
        # Otherwise the last observation remains, since windows end there.
        start = tf.where(follows | (held <= 0), head, head + 1)
        held = tf.where(follows, held, 1 - self._frames)
        new_head = start + end - begin
        longest = tf.reduce_max(new_head - head)
        tf.raw_ops.Assert(
            condition=longest <= self._length,
            data=["Rows of", self._length, "have no room for a chunk of", longest],
        )

        def here(rows, entry, where=None):
            entry += tf.gather(start - begin, rows)
            return self._slots(tf.gather(targets, rows), entry, where)

        rows, entry = _ranges(head + self._frames, new_head + self._frames)
        old = self._slots(tf.gather(targets, rows), entry)
        self._selector.change(_NOTHING, old)
        slots = here(*_entries(begin, end, steps))
        stored = self._stored()
        _assign(stored.values(), slots, [chunk[name] for name in stored])
        size = tf.cast(size, tf.int64)
        rows, entry = chunk["index"] % size, chunk["index"] // size
        oldest = tf.maximum(begin - held, end + self._frames - self._length)
        new = here(rows, entry, entry >= tf.gather(oldest, rows))
        self._selector.change(new, _NOTHING, chunk["priority"])
        held = tf.minimum(steps, held + end - begin)
        state = tf.stack([new_head, held], 1)
        _assign([self._state, self._source], targets, [state, end])

    def _stored(self) -> dict[str, tf.Variable]:
        """All that is stored of entries, by name."""
        groups = {"observations": self._observations, "steps": self._steps}
        return {
            f"{name}_{number}": variable
            for name, variables in groups.items()
            for number, variable in enumerate(variables)
        }

    def _append_older(self, rows: tf.Tensor, head: tf.Tensor, *leaves) -> None:
        """Write the older frames of leaves of observations `[K, stack, ...]`.

        Rows whose episodes do not begin have the same ones there already. The next
        step is at a later entry because of them, so members further ahead leave.
        """
        past = head[:, tf.newaxis] - np.arange(self._frames - 1, 0, -1)
        slots = tf.reshape(self._slots(rows[:, tf.newaxis], past), [-1])
        frames = spaces.unflatten(self._structure, [x[:, :-1] for x in leaves])
        packed = self._observation.pack(frames)
        shapes = [[-1, *spec.shape] for spec in self._observation.specs]
        values = [tf.reshape(x, s) for x, s in zip(packed, shapes, strict=True)]
        _assign(self._observations, slots, values)
        following = head[:, tf.newaxis] + np.arange(1, self._frames)
        old = self._slots(rows[:, tf.newaxis], following)
        self._selector.change(_NOTHING, tf.reshape(old, [-1]))

    def _update_members(
        self, rows: tf.Tensor, head: tf.Tensor, steps: tf.Tensor, done: tf.Tensor
    ) -> tf.Tensor:
        """Insert what this step completes, remove what the next one would break.

        At the next step, at entry `next`, the frames of `[next, next + stack)` are
        written already or will be. Nothing that needs what was there is a member.
        Returns the index of what is inserted, -1 for nothing, `[K * n_step]`.
        """
        rows, head, done = rows[:, tf.newaxis], head[:, tf.newaxis], done[:, tf.newaxis]
        past = np.arange(self._n_step)
        complete = (past <= steps[:, tf.newaxis]) & ((past == past[-1]) | done)
        new = self._slots(rows, head - past, complete)
        index = (head - past) * self._rows + tf.cast(rows, tf.int64)
        ahead = np.arange(2)  # One more if the last observation is left behind.
        old = self._slots(rows, head + self._frames + ahead, done | (ahead == 0))
        self._selector.change(tf.reshape(new, [-1]), tf.reshape(old, [-1]))
        return tf.reshape(tf.where(complete, index, -1), [-1])

    def _window(self, rows: tf.Tensor, entry: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Steps `[B, n_step, ...]` at entries `[B]` and after, and which ones count.

        Those count that are of the same episode, as long as it is complete.
        """
        steps = self._gather(self._step, self._steps, rows, entry, range(self._n_step))
        alive = tf.cast(~(steps["terminated"] | steps["truncated"]), tf.float32)
        return steps, tf.math.cumprod(alive, 1, exclusive=True)

    def _observation_of(self, rows: tf.Tensor, entry: tf.Tensor) -> Any:
        """Observations `[B, ...]` at entries `[B]`."""
        past = range(1 - self._frames, 1)
        frames = self._gather(self._observation, self._observations, rows, entry, past)
        if self._stack:
            return frames
        return spaces.transform(lambda x: x[:, 0], frames)

    def _gather(self, structure, variables, rows, entry, offsets) -> Any:
        """Leaves `[B, len(offsets), ...]` of entries around the given ones."""
        entries = entry[:, tf.newaxis] + np.array(offsets)
        slots = self._slots(rows[:, tf.newaxis], entries)
        return structure.unpack([tf.gather(x, slots) for x in variables])

    def _slots(
        self, rows: tf.Tensor, entry: tf.Tensor, where: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Indices int32 in variables of entries int64, those of none elsewhere."""
        slots = tf.cast(entry % self._length, tf.int32)
        slots += tf.cast(rows, tf.int32) * self._length
        if where is None:
            return slots
        return tf.where(where, slots, self._rows * self._length)


_NOTHING = np.zeros([0], np.int32)


def replay_bytes(
    observation: Any,
    action: Any,
    rows: int,
    capacity: int,
    selector: uniform.Uniform | prioritized.Prioritized,
    n_step: int = 1,
    stack: int | None = None,
) -> int:
    """Memory that a `Replay` of these arguments takes; nothing is allocated."""
    entries = rows * _row_length(rows, capacity, n_step, stack)
    specs = [x for part in _packings(observation, action, stack) for x in part.specs]
    entry = sum(math.prod(spec.shape) * spec.dtype.size for spec in specs)
    return entries * entry + 24 * rows + selector.num_bytes(entries)


def _row_length(rows: int, capacity: int, n_step: int, stack: int | None) -> int:
    """Entries of a row, such that its share of transitions can be drawn."""
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


def _packings(observation, action, stack) -> tuple[packing.Packing, packing.Packing]:
    """What an entry is: a frame or observation, and the step that was done there."""
    if stack is not None:
        for spec in spaces.flatten(observation):
            if stack < 1 or spec.shape.rank == 0 or spec.shape[0] != stack:
                raise ValueError(
                    f"observations must be stacks of {stack} frames, [{stack}, ...], "
                    f"got {spec}."
                )
        observation = spaces.transform(
            lambda x: tf.TensorSpec(x.shape[1:], x.dtype), observation
        )
    flag = tf.TensorSpec([], tf.bool)
    step = _step(action, tf.TensorSpec([]), flag, flag)
    return packing.Packing(observation), packing.Packing(step)


def _step(action, reward, terminated, truncated) -> dict[str, Any]:
    return {
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
    }


def _entries(begin, head, steps) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows and entries `[M]` that were written since `begin`, in states of rows."""
    return _ranges(begin, head + tf.cast(steps > 0, tf.int64))


def _ranges(begin: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows int32 and numbers int64 `[M]`, those of each row from `begin` to `end`."""
    count = end - begin
    rows = tf.repeat(tf.range(tf.size(count)), count)
    offset = begin - tf.cumsum(count, exclusive=True)
    return rows, tf.range(tf.size(rows, tf.int64)) + tf.gather(offset, rows)


def _allocate(structure: packing.Packing, entries: int) -> list[tf.Variable]:
    return [
        tf.Variable(tf.zeros([entries, *spec.shape], spec.dtype), trainable=False)
        for spec in structure.specs
    ]


def _assign(
    variables: Iterable[tf.Variable], indices: tf.Tensor, values: list[tf.Tensor]
) -> None:
    """Write `[M, ...]` to indices `[M]`; much faster for frames than `scatter_nd`."""
    for variable, value in zip(variables, values, strict=True):
        variable.scatter_update(tf.IndexedSlices(value, indices))


def _weights(probability: tf.Tensor, size: tf.Tensor, beta: Any) -> tf.Tensor:
    """Importance weights float32 `[B]`, relative to the largest of the batch."""
    weights = tf.cast(size, tf.float64) * probability
    weights = weights ** -tf.cast(beta, tf.float64)
    return tf.cast(weights / tf.reduce_max(weights), tf.float32)
