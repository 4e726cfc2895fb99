"""Contents of replay memories that are moved to another one."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from interaction import Interaction, drawn, functions, make, prioritized, rows, step

from agents import memories
from agents.memories import transfer


def moved(sender, receiver, since, first_row=0):
    """Take and extend, as between processes; returns since when next."""
    chunk = {name: x.numpy() for name, x in transfer.take(sender, since).items()}
    for array in chunk.values():
        array.setflags(write=False)
    transfer.extend(receiver, chunk, first_row)
    return chunk["state"][:, 0]


def zeros(replay):
    return np.zeros(replay.persistent["state"].shape[0], np.int64)


def test_chunk_by_hand():
    sender, receiver = make(2, 10, n_step=2), make(3, 300, n_step=2)
    for number in (10, 11, 12):
        step(sender, 1, number)
    chunk = {
        name: x.numpy().tolist()
        for name, x in transfer.take(sender, zeros(sender)).items()
    }
    assert chunk["begin"] == [0, 0]
    assert chunk["state"] == [[0, 0], [3, 3]]
    assert chunk["index"] == [1, 3]  # Of two rows, entries 0 and 1 of the second.
    assert chunk["priority"] == [1, 1]
    assert chunk["observations_0"] == [10, 11, 12, 13]
    since = moved(sender, receiver, zeros(sender), 1)
    assert drawn(receiver) == drawn(sender)
    assert set(drawn(receiver)) == {10, 11}
    step(sender, 1, 13, "terminated")
    step(sender, 0, 20, "truncated")
    chunk = {
        name: x.numpy().tolist() for name, x in transfer.take(sender, since).items()
    }
    assert chunk["begin"] == [0, 3]
    assert chunk["index"] == [0, 5, 7]  # That of step 12 waited for the next one.
    assert chunk["observations_0"] == [20, 21, 13, 14]
    since = moved(sender, receiver, since, 1)
    assert set(drawn(receiver)) == {10, 11, 12, 13, 20}
    assert drawn(receiver) == drawn(sender)
    assert since.tolist() == [2, 5]
    for name in ("index", "priority", "observations_0", "steps_0"):
        assert transfer.take(sender, since)[name].shape[0] == 0
    assert moved(sender, receiver, since, 1).tolist() == [2, 5]
    assert drawn(receiver) == drawn(sender)


def test_indices_of_moved_transitions():
    sender, receiver = make(2, 10, n_step=2), make(3, 300, n_step=2)
    since = zeros(sender)
    for numbers in ((10, 11, 12), (13, 14)):
        for number in numbers:
            step(sender, 1, number)
        chunk = transfer.take(sender, since)
        index = transfer.extend(receiver, chunk, 1)
        since = chunk["state"][:, 0]
        assert (index.numpy() % 3 == 2).all()
        expected = sender.get(chunk["index"])["observation"]
        np.testing.assert_array_equal(receiver.get(index)["observation"], expected)
    assert index.shape == [2]


def everything(replay):
    """Index of all transitions that can be drawn."""
    selector = replay.persistent["selector"]
    if "levels" in selector:
        slots = np.flatnonzero(selector["levels"][0].numpy())
    else:
        slots = np.sort(selector["members"].numpy()[: int(replay.size)])
    rows, slots = np.divmod(slots, replay._length)
    heads = replay.persistent["state"].numpy()[:, 0]
    last = heads[rows] - 1
    entries = last - (last - slots) % replay._length
    return tf.constant(entries * len(heads) + rows, tf.int64)


class Part:
    """Memory of some rows of an interaction, with errors of all that is complete."""

    def __init__(self, part, capacity, spec, **options):
        self.part, self.rows = part, len(part)
        self.replay = make(self.rows, self.rows * capacity, spec, **options)
        self._functions = functions(self.replay, spec, "graph")
        self._update = tf.function(self.replay.update, reduce_retracing=True)

    def append(self, interaction, beginning, acting, taken, errors):
        begin, append = self._functions
        rows = [x - self.part[0] for x in beginning if x in self.part]
        begin(tf.constant(rows, tf.int32))
        chosen = [i for i, row in enumerate(acting) if row in self.part]
        index = append(
            tf.constant([acting[i] - self.part[0] for i in chosen], tf.int32),
            interaction.batch([taken[i] for i in chosen]),
        )
        errors = errors[[acting[i] for i in chosen]]
        self._update(index, tf.constant(errors.ravel()))


def assert_same(moved, direct):
    """Rows, members, priorities, and all that these need."""
    one, two = moved.persistent, direct.persistent
    np.testing.assert_array_equal(one["state"], two["state"])
    np.testing.assert_array_equal(one["source"], one["state"][:, 0])
    assert moved.size.numpy() == direct.size.numpy()
    one_selector, two_selector = one["selector"], two["selector"]
    if "levels" in one_selector:
        tf.nest.map_structure(np.testing.assert_array_equal, one_selector, two_selector)
    index = everything(moved)
    np.testing.assert_array_equal(index, everything(direct))
    tf.nest.map_structure(
        np.testing.assert_array_equal, moved.get(index), direct.get(index)
    )
    length = direct._length  # Also what is not complete yet.
    for row, (head, steps) in enumerate(two["state"].numpy()):
        entries = np.arange(max(0, head + 1 - length), head + (steps > 0))
        slots = row * length + entries % length
        for x, y in zip(one["observations"], two["observations"], strict=True):
            np.testing.assert_array_equal(x.numpy()[slots], y.numpy()[slots])


SELECTORS = {
    "uniform": memories.Uniform,
    "prioritized": lambda: memories.Prioritized(1.0),
}


@pytest.mark.quick("prioritized-3-4")
@pytest.mark.parametrize(
    ("kind", "n_step", "stack"), [*itertools.product(SELECTORS, (1, 3), (None, 4))]
)
def test_what_is_moved_is_what_would_have_been_appended(kind, n_step, stack):
    """From two memories to the rows of larger ones and of smaller ones."""
    interaction = Interaction(5, stack, seed=10 * n_step + (stack or 0))
    options = {"n_step": n_step, "discount": 0.9, "stack": stack}
    spec = interaction.spec
    parts = [
        Part(part, 20, spec, selector=SELECTORS[kind](), **options)
        for part in (range(2), range(2, 5))
    ]
    direct = [
        Part(range(5), size, spec, selector=SELECTORS[kind](), **options)
        for size in (12, 60)
    ]
    receivers = [
        make(5, 5 * size, spec, selector=SELECTORS[kind](), **options)
        for size in (12, 60)
    ]
    takes = [
        tf.function(functools.partial(transfer.take, x.replay), autograph=False)
        for x in parts
    ]
    extends = [
        tf.function(
            functools.partial(transfer.extend, x),
            autograph=False,
            reduce_retracing=True,
        )
        for x in receivers
    ]
    since = [zeros(x.replay) for x in parts]
    generator = np.random.default_rng(7)
    for number in range(200):
        step = interaction.step()
        errors = generator.normal(size=[5, n_step]).astype("f4")
        for memory in (*parts, *direct):
            memory.append(interaction, *step, errors)
        if number % 3 and generator.random() < 0.6:
            continue
        for i, part in enumerate(parts):
            chunk = takes[i](tf.constant(since[i]))
            since[i] = chunk["state"].numpy()[:, 0]
            for extend in extends:
                extend(chunk, tf.constant(part.part[0]))
        if number % 4 == 0:
            for moved, other in zip(receivers, direct, strict=True):
                assert_same(moved, other.replay)
    assert direct[1].replay.persistent["state"].numpy()[:, 0].min() > 70
    for function in takes:
        assert function.experimental_get_tracing_count() == 1
    for function in extends:
        assert function.experimental_get_tracing_count() < 5


def test_largest_priority_moves_along():
    sender, receiver = prioritized(capacity=10), prioritized(capacity=100)
    step(sender, 0, 1)
    sender.update(tf.constant([0], tf.int64), tf.constant([7.5]))
    step(sender, 0, 2)
    moved(sender, receiver, zeros(sender))
    step(receiver, 0, 3)
    values = receiver.persistent["selector"]["levels"][0].numpy()[0]
    assert values[:4].tolist() == [8, 8, 8, 0]


def test_new_transitions_have_the_largest_priority_here():
    """As in a local run, whose errors the other memory does not know."""
    sender, receiver, local = (prioritized(capacity=10) for _ in range(3))
    since = zeros(sender)
    for numbers in ((0, 1, 2), (3, 4, 5)):
        for number in numbers:
            step(sender, 0, number)
            step(local, 0, number)
        since = moved(sender, receiver, since)
        for replay in (receiver, local):
            replay.update(tf.constant([0, 1], tf.int64), tf.constant([7.5, 0.5]))
    values = receiver.persistent["selector"]["levels"][0].numpy()[0]
    assert values[:6].tolist() == [8, 1, 1, 8, 8, 8]
    assert_same(receiver, local)


def content(observation):
    """Bytes of all leaves of an observation."""
    return b"".join(np.asarray(x).tobytes() for x in tf.nest.flatten(observation))


@pytest.mark.quick("3-3")
@pytest.mark.parametrize(("n_step", "stack"), [(1, 3), (3, None), (3, 3)])
def test_transitions_of_which_a_part_was_lost_are_left_out(n_step, stack):
    """No others are, and what was there before stays."""
    interaction = Interaction(2, stack, 3)
    options = {"observation": interaction.spec, "n_step": n_step, "stack": stack}
    sender, receiver = make(2, 60, **options), make(2, 2000, **options)
    begin, append = functions(sender, interaction.spec, "graph")
    generator, frames = np.random.default_rng(0), stack or 1
    since, source, first = zeros(sender), zeros(sender), zeros(sender)
    contents, complete, kept, count = {}, [], [], 0
    for _ in range(250):
        beginning, acting, taken = interaction.step()
        begin(tf.constant(beginning, tf.int32))
        for row, one in zip(acting, taken, strict=True):
            head, steps = sender.persistent["state"].numpy()[row]
            entry = head + (0 if steps else frames - 1)
            contents[entry, row] = content(one["observation"])
        index = append(tf.constant(acting, tf.int32), interaction.batch(taken)).numpy()
        complete += [divmod(x, 2) for x in index if x >= 0]
        if generator.random() < 0.6:
            continue
        if generator.random() < 0.6:
            first = np.where(since == source, first, since)
            source = moved(sender, receiver, since)
            kept += [x for x in complete if x[0] - frames + 1 >= first[x[1]]]
            count += len(complete)
        since, complete = sender.persistent["state"].numpy()[:, 0], []
    items = tf.nest.map_structure(
        lambda x: x.numpy(), receiver.get(everything(receiver))["observation"]
    )
    size = int(receiver.size)
    found = [
        content(tf.nest.map_structure(lambda x, i=i: x[i], items)) for i in range(size)
    ]
    assert sorted(found) == sorted(contents[key] for key in kept)
    assert 50 < len(kept) < count


def test_another_memory_goes_on_where_one_ended():
    """As when the process that had it was replaced."""
    receiver = make(1, 100, n_step=2, discount=1.0)
    before = make(1, 20, n_step=2)
    for number in (1, 2, 3):
        step(before, 0, number)
    moved(before, receiver, zeros(before))
    after = make(1, 20, n_step=2)
    since = zeros(after)
    for number in range(10, 60):
        step(after, 0, number, "terminated" if number % 20 == 0 else None)
        if number % 4 == 0:
            since = moved(after, receiver, since)
            if number % 20 == 0:
                after.begin(rows(0))
    again = make(1, 20, n_step=2)
    step(again, 0, 70, "terminated")
    assert since[0] > moved(again, receiver, since)[0] > 0
    assert drawn(receiver).pop(70)
    assert drawn(receiver)[2] == (2, 5, 1, 4)
    assert drawn(receiver)[18] == (18, 37, 1, 20)
    assert sorted(drawn(receiver)) == [1, 2, *range(10, 56), 70]


def test_new_memory_begins_with_what_there_is():
    sender, receiver = make(1, 10, n_step=2), make(1, 50, n_step=2)
    for number in range(100):
        step(sender, 0, number, "truncated" if number == 95 else None)
    since = moved(sender, receiver, zeros(sender))
    assert len(drawn(sender)) == 9  # One less because of the end.
    assert drawn(receiver) == drawn(sender)
    for number in range(100, 110):
        step(sender, 0, number)
    moved(sender, receiver, since)
    assert sorted(drawn(receiver)) == [*range(90, 109)]


def test_successor_of_a_memory_does_not_go_on_where_its_first_chunk_was_lost():
    """Even if it has as many entries as the memory before it had."""
    receiver = make(2, 100)
    before, after = make(1, 20), make(1, 20)
    for number in range(8):
        step(before, 0, number)
    moved(before, receiver, zeros(before), 1)
    transfer.detach(receiver, 1, 1)
    for number in range(100, 108):
        step(after, 0, number)
    since = transfer.take(after, zeros(after))["state"][:, 0]  # And lost.
    for number in range(108, 112):
        step(after, 0, number)
    moved(after, receiver, since, 1)
    assert sorted(drawn(receiver)) == [*range(8), *range(108, 112)]
    assert drawn(receiver)[7] == drawn(before)[7]


def test_chunk_that_is_too_long_is_an_error():
    sender, receiver = make(1, 30), make(1, 10)
    for number in range(12):
        step(sender, 0, number)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no room for a chunk"):
        moved(sender, receiver, zeros(sender))
    assert receiver.size.numpy() == 0
    moved(sender, receiver, np.array([5], np.int64))
    assert sorted(drawn(receiver)) == [*range(5, 12)]


def test_every_transition_is_taken_once():
    sender, receiver = make(2, 10), make(2, 300)
    take = tf.function(transfer.taker(sender))
    for number in (10, 11, 12):
        step(sender, 0, number)
        chunk, lengths = take()
        assert lengths.shape == [0]
        transfer.extend(receiver, chunk)
        assert drawn(receiver) == drawn(sender)
    chunk, _ = take()
    assert chunk["index"].shape == [0]


def test_what_was_overwritten_takes_no_place():
    """Neither in the chunk, where the last observation took it, nor here."""
    sender, receiver = make(1, 10), make(1, 50)
    for number in range(20):
        step(sender, 0, number)
    chunk = transfer.take(sender, zeros(sender))
    assert chunk["begin"].numpy().tolist() == [10]
    assert chunk["observations_0"].numpy().tolist() == [*range(10, 21)]
    moved(sender, receiver, zeros(sender))
    assert receiver.persistent["state"].numpy().tolist() == [[10, 10]]


def test_chunk_that_fills_a_row_loses_what_its_last_observation_overwrites():
    sender, receiver = make(1, 30), make(1, 10)  # Eleven entries.
    for number in range(11):
        step(sender, 0, number)
    moved(sender, receiver, zeros(sender))
    assert sorted(drawn(receiver)) == [*range(1, 11)]
    assert drawn(receiver)[10] == (10, 10, 0.99, 11)
