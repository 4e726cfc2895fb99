"""Transfer of transitions between replay memories, even across processes.

Repeat these lines to keep a larger memory up to date:

    chunk = transfer.take(smaller, since)         # `since` is zero at first
    transfer.extend(larger, chunk, first_row)
    since = chunk["state"][:, 0]
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.memories import replay


def taker(memory: replay.Replay) -> Callable[[], tuple[dict, tf.Tensor]]:
    """Create a function that returns all transitions added since its last call.

    It also returns empty lengths, int32 `[0]`, since there are no sequences.
    """
    since = tf.Variable(tf.zeros([memory._rows], tf.int64), trainable=False)

    def call():
        chunk = take(memory, since.read_value())
        since.assign(chunk["state"][:, 0])
        return chunk, tf.zeros([0], tf.int32)

    return call


def take(memory: replay.Replay, since: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return all entries after the first `since` ones of each row, for `extend`.

    Args:
      memory: Source memory.
      since: Entries of each row at the last call, int64 `[rows]`, at first zero; counts
        of an earlier memory that exceed the current ones act as zero.

    Returns:
      Dict of `begin` `[rows]`, the first included entry, which is later than requested
      if that was overwritten; `state` `[rows, 2]`, whose first column is `since` of the
      next call; `index` `[P]` of transitions that became complete since and are still
      stored, and their `priority` float64 `[P]`, one if the memory has got no errors;
      and the data of entries of all rows in turn, `observations_i` and `steps_i`
      `[M, ...]`.
    """
    state = memory._state.read_value()
    head, steps = tf.unstack(state, axis=1)
    oldest = head - memory._length + 1
    begin = tf.maximum(tf.where(since > head, tf.zeros_like(head), since), oldest)
    slots = memory._slots(*_entries(begin, head, steps))
    # Windows that end after `begin`.
    rows, entry = _ranges(tf.maximum(begin - memory._n_step + 1, oldest), head)
    priority = memory._selector.priorities(memory._slots(rows, entry))
    _, alive = memory._window(rows, entry)
    end = entry + tf.cast(tf.reduce_sum(alive, 1), tf.int64)
    new = (priority > 0) & (end > tf.gather(begin, rows))
    index = entry * memory._rows + tf.cast(rows, tf.int64)
    return {
        "begin": begin,
        "state": state,
        "index": tf.boolean_mask(index, new),
        "priority": tf.boolean_mask(priority, new),
        **{name: tf.gather(x, slots) for name, x in _stored(memory).items()},
    }


def extend(
    memory: replay.Replay, chunk: dict[str, Any], first_row: int | tf.Tensor = 0
) -> tf.Tensor:
    """Extend rows by entries that `take` returned for another memory.

    The result is as if every transition had been appended here directly, priorities
    included: the largest so far, or those of the other memory if it has got errors. If
    a chunk does not continue the previous one, because one was lost or either memory is
    new (see `detach`), the row continues as after a cut-off: it keeps its transitions,
    and omits incomplete ones of the chunk.

    Args:
      memory: Memory to extend.
      chunk: Result of `take`, as tensors or arrays, for equal observations, actions,
        `n_step` and `stack`. Capacity and number of rows may differ.
      first_row: Row that continues the first one of the other memory.

    Returns:
      Indices here of the transitions that the chunk completed, int64 `[P]`.

    Raises:
      tf.errors.InvalidArgumentError: if a row has no room for all entries.
    """
    chunk = {name: tf.convert_to_tensor(x) for name, x in chunk.items()}
    begin, (end, steps) = chunk["begin"], tf.unstack(chunk["state"], axis=1)
    size = tf.size(begin)
    targets = first_row + tf.range(size)
    head, held = tf.unstack(tf.gather(memory._state, targets), axis=1)
    follows = tf.gather(memory._source, targets) == begin
    # Otherwise the last observation remains, because windows end there.
    start = tf.where(follows | (held <= 0), head, head + 1)
    held = tf.where(follows, held, 1 - memory._frames)
    new_head = start + end - begin
    longest = tf.reduce_max(new_head - head)
    tf.raw_ops.Assert(
        condition=longest <= memory._length,
        data=[
            "The replay memory has no room for a chunk; raise algorithm.capacity. Entries "
            "of a row and of the chunk:",
            *(memory._length, longest),
        ],
    )

    def here(rows, entry):
        return tf.gather(targets, rows), entry + tf.gather(start - begin, rows)

    rows, entry = _ranges(head + memory._frames, new_head + memory._frames)
    old = memory._slots(tf.gather(targets, rows), entry)
    memory._selector.change(replay.NOTHING, old)
    slots = memory._slots(*here(*_entries(begin, end, steps)))
    stored = _stored(memory)
    replay.assign(stored.values(), slots, [chunk[name] for name in stored])
    size = tf.cast(size, tf.int64)
    rows, entry = chunk["index"] % size, chunk["index"] // size
    oldest = tf.maximum(begin - held, end + memory._frames - memory._length)
    known = entry >= tf.gather(oldest, rows)
    rows, entry = here(rows, entry)
    priority = chunk["priority"]
    fresh = priority == 1  # No error has exactly this priority, unless all have.
    memory._selector.change(memory._slots(rows, entry, known & fresh), replay.NOTHING)
    new = memory._slots(rows, entry, known & ~fresh)
    memory._selector.change(new, replay.NOTHING, priority)
    index = entry * memory._rows + tf.cast(rows, tf.int64)
    held = tf.minimum(steps, held + end - begin)
    state = tf.stack([new_head, held], 1)
    replay.assign([memory._state, memory._source], targets, [state, end])
    return tf.boolean_mask(index, known)


def detach(memory: replay.Replay, first_row: int, rows: int) -> None:
    """Detach these rows from the memories that extended them; others follow.

    The counts in chunks do not tell a memory from its successor, which begins at zero.
    """
    targets = tf.range(first_row, first_row + rows)
    memory._source.scatter_update(tf.IndexedSlices(-tf.ones([rows], tf.int64), targets))


def _stored(memory: replay.Replay) -> dict[str, tf.Variable]:
    """Return all variables with data of entries, by name."""
    groups = {"observations": memory._observations, "steps": memory._steps}
    return {
        f"{name}_{number}": variable
        for name, variables in groups.items()
        for number, variable in enumerate(variables)
    }


def _entries(begin, head, steps) -> tuple[tf.Tensor, tf.Tensor]:
    """Return rows and entries `[M]` that were written since `begin`."""
    return _ranges(begin, head + tf.cast(steps > 0, tf.int64))


def _ranges(begin: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """List rows int32 and numbers int64 `[M]`, from `begin` to `end` for each row."""
    count = end - begin
    rows = tf.repeat(tf.range(tf.size(count)), count)
    offset = begin - tf.cumsum(count, exclusive=True)
    return rows, tf.range(tf.size(rows, tf.int64)) + tf.gather(offset, rows)
