"""Replay memory, compared with a list of episodes."""

import itertools

import gymnasium
import numpy as np
import psutil
import pytest
import tensorflow as tf
from interaction import (
    INTEGER,
    NUMBER,
    SEED,
    Interaction,
    Row,
    drawn,
    functions,
    make,
    prioritized,
    rows,
    step,
)

from agents import memories
from agents.tools import checkpoint, conditional


def test_steps_of_an_episode():
    replay = make(discount=0.5)
    replay.begin(rows(0))
    assert drawn(replay) == {}
    step(replay, 0, 10)
    step(replay, 0, 11)
    step(replay, 0, 12, "terminated")
    assert drawn(replay) == {
        10: (10, 10, 0.5, 11),
        11: (11, 11, 0.5, 12),
        12: (12, 12, 0, 13),
    }
    item = replay.sample(4, SEED)
    assert item["weight"].numpy().tolist() == [1, 1, 1, 1]
    assert item["action"].dtype == tf.int64
    assert item["index"].dtype == tf.int64


@pytest.mark.parametrize(
    ("end", "discount"), [("terminated", 0), ("truncated", 0.25), ("both", 0)]
)
def test_three_steps_by_hand(end, discount):
    """Windows stop where the episode does, and bootstrap only where it goes on."""
    replay = make(discount=0.5, n_step=3)
    replay.begin(rows(0))
    for number in (1, 2):
        step(replay, 0, number)
        assert drawn(replay) == {}
    step(replay, 0, 3)
    assert drawn(replay) == {1: (1, 1 + 2 / 2 + 3 / 4, 0.125, 4)}
    step(replay, 0, 4, end)
    last = {"truncated": 0.125}.get(end, 0)
    first_episode = {
        1: (1, 2.75, 0.125, 4),
        2: (2, 2 + 3 / 2 + 4 / 4, last, 5),
        3: (3, 3 + 4 / 2, discount, 5),
        4: (4, 4, 2 * discount, 5),
    }
    assert drawn(replay) == first_episode
    replay.begin(rows(0))
    for number in (100, 101):
        step(replay, 0, number)
        assert drawn(replay) == first_episode
    step(replay, 0, 102, "terminated")
    assert sorted(drawn(replay)) == [1, 2, 3, 4, 100, 101, 102]
    assert drawn(replay)[101] == (101, 101 + 102 / 2, 0, 103)


def test_episode_that_is_cut_off_has_no_incomplete_windows():
    replay = make(n_step=2, discount=1.0)
    replay.begin(rows(0))
    for number in (1, 2, 3):
        step(replay, 0, number)
    replay.begin(rows(0))
    step(replay, 0, 50, "terminated")
    replay.begin(rows(0))
    assert drawn(replay) == {1: (1, 3, 1, 3), 2: (2, 5, 1, 4), 50: (50, 50, 0, 51)}


@pytest.mark.slow
def test_running_episode_of_the_capacity_is_held_in_full():
    for n_step in (1, 2, 5):
        replay = make(rows=2, capacity=10, n_step=n_step)
        for number in range(100):
            step(replay, 1, number)
            held = range(max(0, number - n_step - 3), number - n_step + 2)
            assert sorted(drawn(replay, 100)) == list(held)


def test_each_end_takes_the_place_of_one_transition():
    replay = make(capacity=6)
    for number in range(30):
        step(replay, 0, number, "terminated")
    assert sorted(drawn(replay)) == [27, 28, 29]


def test_rows_that_never_act_are_never_drawn():
    replay = make(rows=3, capacity=30)
    replay.begin(rows(0, 1, 2))
    step(replay, 1, 7)
    assert drawn(replay) == {7: (7, 7, 0.99, 8)}


def check(replay, log, n_step, discount, seed):
    """All that is drawn is in the log, and all that could be drawn is drawn."""
    expected = {
        (number, row): item
        for row, entries in enumerate(log)
        for number, item in entries.items(n_step, discount).items()
    }
    assert replay.size.numpy() == len(expected)
    if not expected:
        return
    items = replay.sample(1500, tf.constant([seed, 3]))
    index = items.pop("index").numpy()
    assert (items.pop("weight").numpy() <= 1).all()
    items = tf.nest.map_structure(lambda x: x.numpy(), items)
    keys = [divmod(int(x), len(log)) for x in index]
    assert set(keys) == set(expected)
    wanted = [expected[key] for key in keys]
    wanted = tf.nest.map_structure(lambda *x: np.stack(x), *wanted)
    for key in ("observation", "next_observation", "action"):
        tf.nest.map_structure(np.testing.assert_array_equal, items[key], wanted[key])
    for key in ("reward", "discount"):
        np.testing.assert_allclose(items[key], wanted[key], rtol=1e-5, atol=1e-6)


@pytest.mark.quick("graph-2-4")
@pytest.mark.parametrize(
    ("mode", "n_step", "stack"),
    [*itertools.product(("eager", "graph"), (1, 2, 3, 5), (None, 4))],
)
def test_random_interaction_agrees_with_a_list_of_episodes(mode, n_step, stack):
    num_rows, capacity, discount = 3, 36, 0.9
    interaction = Interaction(num_rows, stack, seed=10 * n_step + (stack or 0))
    selector = memories.Uniform() if mode == "eager" else memories.Prioritized(0.0)
    replay = make(
        num_rows,
        capacity,
        interaction.spec,
        selector=selector,
        n_step=n_step,
        discount=discount,
        stack=stack,
    )
    begin, append = functions(replay, interaction.spec, mode)
    frames = stack or 1
    length = capacity // num_rows + frames + n_step - 1
    log = [Row(length, frames) for _ in range(num_rows)]
    for number in range(160):
        beginning, acting, steps = interaction.step()
        begin(tf.constant(beginning, tf.int32))
        for row in beginning:
            log[row].begin()
        append(tf.constant(acting, tf.int32), interaction.batch(steps))
        for row, one in zip(acting, steps, strict=True):
            log[row].append(one)
        if number % 5 == 0 or number < 10:
            check(replay, log, n_step, discount, number)
    assert min(row.next for row in log) > 2 * length  # It went around.
    if mode == "graph":
        assert append.experimental_get_tracing_count() == 1


@pytest.mark.quick("4-3")
@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("stack", [None, 1, 2, 4])
def test_smallest_memories(capacity, stack):
    interaction = Interaction(2, stack, seed=capacity)
    replay = make(2, 2 * capacity, interaction.spec, stack=stack)
    begin, append = functions(replay, interaction.spec, "graph")
    frames = stack or 1
    log = [Row(max(2, capacity) + frames, frames) for _ in range(2)]
    for number in range(60):
        beginning, acting, steps = interaction.step()
        begin(tf.constant(beginning, tf.int32))
        for row in beginning:
            log[row].begin()
        append(tf.constant(acting, tf.int32), interaction.batch(steps))
        for row, one in zip(acting, steps, strict=True):
            log[row].append(one)
        check(replay, log, 1, 0.99, number)


@pytest.mark.quick("Prioritized-4")
@pytest.mark.parametrize("stack", [None, 4])
@pytest.mark.parametrize("selector", [memories.Uniform, memories.Prioritized])
def test_xla_does_the_same(selector, stack):
    """Append of all rows, begin of some, sample and update, in one program or not."""
    results = []
    for mode in ("graph", "xla"):
        interaction = Interaction(3, stack, seed=5)
        replay = make(
            3, 30, interaction.spec, selector=selector(), n_step=3, stack=stack
        )
        begin, append = functions(replay, interaction.spec, mode, 3)
        compiled = mode == "xla" or None

        def train(seed, replay=replay):
            items = replay.sample(16, seed, 0.5)
            replay.update(items["index"], items["reward"])
            return items

        train = tf.function(train, autograph=False, jit_compile=compiled)
        for number in range(60):
            beginning, acting, steps = interaction.step(subset=False)
            mask = np.isin(np.arange(3), beginning)
            begin(tf.constant(mask if compiled else beginning.astype("i4")))
            append(tf.constant(acting, tf.int32), interaction.batch(steps))
            if number > 10:
                results.append(train(tf.constant([number, 1])))
    half = len(results) // 2
    for graph, xla in zip(results[:half], results[half:], strict=True):
        tf.nest.map_structure(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6),
            graph,
            xla,
        )


@pytest.mark.quick("None-None", "2-True")
@pytest.mark.parametrize("compiled", [None, True])
@pytest.mark.parametrize("stack", [None, 2])
def test_loops_in_graphs(compiled, stack):
    """Interaction and training in one loop, in a program that XLA compiles or not."""
    replay = make(
        2,
        12,
        tf.TensorSpec([2, 1] if stack else [1]),
        NUMBER,
        selector=memories.Prioritized(),
        n_step=2,
        discount=0.5,
        stack=stack,
    )
    wrong = tf.Variable(0)

    def body(time):
        everyone = tf.range(2)
        # An episode lasts ten steps, and observations are the time and the row.
        now = tf.cast(time + 1000 * everyone, tf.float32)[:, None]
        observation, following = now, now + 1
        if stack:
            observation = tf.stack([now - 1, now], 1)
            following = tf.stack([now, now + 1], 1)
        begin = (time % 10 == 0) & (everyone >= 0)
        conditional.when(
            time % 10 == 0, lambda x: replay.begin(tf.boolean_mask(everyone, x)), begin
        )
        done = (time % 10 == 9) & (everyone >= 0)
        replay.append(
            everyone, observation, now[:, 0], now[:, 0], done, ~done & done, following
        )

        def train(time):
            items = replay.sample(8, tf.stack([time, 0]))
            start = items["observation"]
            length = tf.where(items["action"] % 10 == 9, 1.0, 2.0)
            good = tf.reduce_all(items["observation"][:, -1:] == start[:, -1:])
            follows = start + tf.reshape(length, [-1] + [1] * (len(start.shape) - 1))
            good &= tf.reduce_all(items["next_observation"] == follows)
            good &= tf.reduce_all(tf.reshape(start, [8, -1])[:, -1] == items["action"])
            wrong.assign_add(tf.cast(~good, tf.int32))
            replay.update(items["index"], items["reward"])

        conditional.when(replay.size > 4, train, time)
        return time + 1

    @tf.function(autograph=False, jit_compile=compiled)
    def run(steps):
        if compiled:
            with conditional.program():
                return tf.while_loop(lambda time: time < steps, body, [0])
        return tf.while_loop(
            lambda time: time < steps, body, [0], parallel_iterations=1
        )

    run(tf.constant(95))
    assert wrong.numpy() == 0
    assert 8 <= replay.size.numpy() <= 12


def images(stack=4, padding="reset"):
    """Steps of a small environment of images in stacks of Gymnasium."""

    class Images(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, [5, 4], np.uint8)
        action_space = gymnasium.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.time, self.length = 0, self.np_random.integers(1, 12)
            return self._image(), {}

        def step(self, action):
            self.time += 1
            return self._image(), self.time, self.time >= self.length, False, {}

        def _image(self):
            return self.np_random.integers(0, 256, [5, 4], np.uint8)

    return gymnasium.wrappers.FrameStackObservation(
        Images(), stack, padding_type=padding
    )


@pytest.mark.quick("reset")
@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_frames_are_those_of_gymnasium_byte_by_byte(padding):
    env = images(padding=padding)
    replay = make(1, 40, tf.TensorSpec([4, 5, 4], tf.uint8), stack=4)
    episodes = []
    for seed in range(25):
        observation, _ = env.reset(seed=seed)
        replay.begin(rows(0))
        episode, done = [observation.copy()], False
        while not done:
            previous = observation.copy()
            observation, reward, done, _, _ = env.step(0)
            episode.append(observation.copy())
            replay.append(
                rows(0),
                tf.constant(previous[None]),
                tf.constant([seed], tf.int64),
                tf.constant([reward], tf.float32),
                tf.constant([done]),
                tf.constant([False]),
                tf.constant(observation[None]),
            )
        episodes.append(episode)
    items = {key: x.numpy() for key, x in replay.sample(300, SEED).items()}
    assert items["observation"].dtype == np.uint8
    for index in range(300):
        episode = episodes[items["action"][index]]
        time = int(items["reward"][index])
        assert items["observation"][index].tobytes() == episode[time - 1].tobytes()
        assert items["next_observation"][index].tobytes() == episode[time].tobytes()


def test_structures_of_frames_and_actions():
    frame = {"a": tf.TensorSpec([3, 2]), "b": (tf.TensorSpec([3], tf.int32),)}
    action = {"x": NUMBER, "y": (INTEGER, tf.TensorSpec([2]))}
    replay = make(2, 20, {"c": frame["a"], **frame}, action, stack=3)

    def observation(time):
        frames = tf.range(time, time + 3)[tf.newaxis]
        numbers = tf.stack([frames, 10 * frames], 2)
        numbers = tf.cast(numbers, tf.float32)
        return {"a": numbers, "b": (frames,), "c": -numbers}

    def chosen(time):
        number = tf.constant([time], tf.float32)
        integers = tf.constant([time], tf.int64)
        return {"x": number, "y": (integers, tf.stack([number, -number], 1))}

    for time in range(5):
        false = tf.constant([False])
        replay.append(
            rows(1),
            observation(time),
            chosen(time),
            tf.constant([float(time)]),
            tf.constant([time == 4]),
            false,
            observation(time + 1),
        )
    items = replay.sample(30, SEED)
    times = items["reward"].numpy().astype(int)
    assert set(times) == set(range(5))
    for key, function, delay in [
        ("observation", observation, 0),
        ("next_observation", observation, 1),
        ("action", chosen, 0),
    ]:
        expected = [function(time + delay) for time in times]
        expected = tf.nest.map_structure(lambda *x: tf.concat(x, 0), *expected)
        tf.nest.map_structure(np.testing.assert_array_equal, items[key], expected)


def indices(replay):
    """Index of each observation that can be drawn."""
    items = replay.sample(200, SEED)
    observations = items["observation"].numpy().tolist()
    return dict(zip(observations, items["index"].numpy().tolist(), strict=True))


def test_importance_weights_by_hand():
    replay = prioritized()
    for number in range(3):
        step(replay, 0, number)
    index = indices(replay)
    replay.update(
        tf.constant([index[0], index[1], index[2]], tf.int64),
        tf.constant([0.5, -1.5, 4.5]),  # Priorities 1, 2, 5 of 8.
    )
    for beta in (0.0, 0.5, tf.constant(1.0)):
        items = replay.sample(64, SEED, beta)
        number = items["observation"].numpy().astype(int)
        assert np.bincount(number).tolist() == [8, 16, 40]
        weights = (3 * np.array([1, 2, 5]) / 8) ** -float(beta)
        expected = (weights / weights.max())[number]
        np.testing.assert_allclose(items["weight"], expected, rtol=1e-6)
    items = replay.sample(1, tf.constant([4, 5]), 1.0)
    assert items["weight"].numpy().tolist() == [1]  # Largest of its batch.


def test_errors_of_transitions_that_are_gone_change_nothing():
    replay = prioritized(capacity=4, num_rows=2)
    for number in range(4):
        step(replay, 1, number)
    old = indices(replay)
    assert sorted(old) == [2, 3]
    step(replay, 1, 4)  # In the place of another one, which is not needed anymore.
    step(replay, 1, 5)
    step(replay, 1, 6)
    new = indices(replay)
    assert sorted(new) == [5, 6]
    replay.update(
        tf.constant([old[2], old[3]], tf.int64), tf.constant([1000.0, 1000.0])
    )
    items = replay.sample(10, SEED)
    assert np.bincount(items["observation"].numpy().astype(int))[5:].tolist() == [5, 5]
    replay.update(tf.constant([new[6], old[3]], tf.int64), tf.constant([8.5, 99.0]))
    items = replay.sample(10, SEED)
    assert np.bincount(items["observation"].numpy().astype(int))[5:].tolist() == [1, 9]


def test_steps_tell_what_they_complete():
    replay = make(rows=2, n_step=3)

    def both(numbers, done):
        numbers, done = tf.constant(numbers, tf.float32), tf.constant(done)
        actions, never = tf.cast(numbers, tf.int64), tf.constant([False, False])
        return replay.append(
            rows(1, 0), numbers, actions, numbers, done, never, numbers + 1
        ).numpy()

    replay.begin(rows(0, 1))
    assert both([10, 20], [False, False]).tolist() == [-1] * 6
    # Of row 1, which is named first, entries 1 and 0 are the indices 3 and 1.
    assert both([11, 21], [True, False]).tolist() == [3, 1, -1, -1, -1, -1]
    replay.begin(rows(1))
    assert both([30, 22], [False, False]).tolist() == [-1, -1, -1, -1, -1, 0]
    replay.begin(rows(0, 1))  # What was running is never complete.
    assert both([40, 50], [True, True]).tolist() == [11, -1, -1, 8, -1, -1]
    index = tf.constant([11, 8, 3, 1, 0], tf.int64)
    items = replay.get(index)
    assert items["observation"].numpy().tolist() == [40, 50, 11, 10, 20]
    assert items["next_observation"].numpy().tolist() == [41, 51, 12, 12, 23]
    assert items["discount"].numpy().tolist()[:4] == [0, 0, 0, 0]
    assert items["index"].numpy().tolist() == index.numpy().tolist()
    assert "weight" not in items


def test_what_is_drawn_is_what_is_there():
    replay = make(3, 30, Interaction(3, None, 0).spec, n_step=2)
    fill(replay, 40)
    items = replay.sample(20, SEED)
    weight = items.pop("weight")
    assert weight.shape == [20]
    tf.nest.map_structure(
        np.testing.assert_array_equal, replay.get(items["index"]), items
    )


def test_none_has_no_error():
    replay = prioritized(capacity=4)
    for number in range(20):
        step(replay, 0, number)
        replay.update(tf.constant([-1, -1], tf.int64), tf.constant([9.0, 99.0]))
        assert (replay.sample(8, SEED)["weight"].numpy() == 1).all()


def fill(replay, steps, seed=0, interaction=None):
    interaction = interaction or Interaction(3, None, seed)
    for _ in range(steps):
        beginning, acting, taken = interaction.step()
        replay.begin(tf.constant(beginning, tf.int32))
        replay.append(tf.constant(acting, tf.int32), **interaction.batch(taken))
    return interaction


@pytest.mark.parametrize("selector", [memories.Uniform, memories.Prioritized])
def test_checkpoint_continues_exactly(selector, tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)

    def create():
        spec = Interaction(3, None, 0).spec
        return make(3, 30, spec, selector=selector(), n_step=2)

    def train(replay, steps):
        for number in range(steps):
            items = replay.sample(8, tf.constant([number, steps]))
            replay.update(items["index"], items["reward"])
        return items

    first, second = create(), create()
    interaction = fill(first, 30)
    train(first, 5)
    checkpoints.save(1, {"memory": first.persistent}, {})
    fill(second, 7, seed=9)
    checkpoints.restore({"memory": second.persistent})
    state = interaction.generator.bit_generator.state, list(interaction.observations)
    outcomes = []
    for replay in (first, second):
        interaction.generator.bit_generator.state = state[0]
        interaction.observations = list(state[1])
        outcomes.append(train(replay, 3))
        fill(replay, 10, interaction=interaction)
        outcomes.append(train(replay, 7))
    for before, after in zip(outcomes[:2], outcomes[2:], strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize(
    "other", [{"capacity": 40}, {"rows": 6, "capacity": 33}, {"observation": INTEGER}]
)
def test_checkpoint_of_another_memory_is_an_error_of_one_line(other, tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.save(1, {"memory": make(rows=3, capacity=30).persistent}, {})
    different = make(**{"rows": 3, "capacity": 30, **other})
    with pytest.raises(checkpoint.CheckpointError, match="does not fit") as error:
        checkpoints.restore({"memory": different.persistent})
    assert "\n" not in str(error.value)


def test_a_million_transitions_of_four_frames_need_less_than_8_gigabytes():
    observation = tf.TensorSpec([4, 84, 84], tf.uint8)
    for selector in (memories.Uniform(), memories.Prioritized()):
        count = memories.replay_bytes(
            observation, INTEGER, 16, 1_000_000, selector, n_step=3, stack=4
        )
        assert 1_000_000 * 84 * 84 < count < 7.2e9


@pytest.mark.parametrize("stack", [None, 4])
@pytest.mark.parametrize("selector", [memories.Uniform(), memories.Prioritized()])
def test_number_of_bytes_is_that_of_the_variables(selector, stack):
    interaction = Interaction(2, stack, 0)
    replay = make(2, 50, interaction.spec, selector=selector, n_step=3, stack=stack)
    variables = tf.nest.flatten(replay.persistent)
    count = sum(x.dtype.size * int(tf.size(x)) for x in variables)
    assert replay.num_bytes == count
    assert len(replay.variables) == len(variables)  # So that nothing else is kept.
    assert not replay.trainable_variables


def test_memory_that_is_too_large_is_an_error_before_it_is_allocated(capfd):
    observation = tf.TensorSpec([1000, 1000], tf.uint8)
    with pytest.raises(memories.ReplayTooLarge) as error:
        make(1, 10**9, observation)
    assert isinstance(error.value, ValueError)
    message = str(error.value)
    assert "\n" not in message
    assert "1000000000 transitions needs 10000" in message
    assert "are free" in message
    assert capfd.readouterr() == ("", "")


def test_nothing_to_draw_is_an_error():
    for selector in (memories.Uniform(), memories.Prioritized()):
        replay = make(selector=selector)
        with pytest.raises(tf.errors.InvalidArgumentError, match="no transition"):
            replay.sample(3, SEED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_step": 11, "rows": 2}, "n_step 11 is longer than the 10 transitions"),
        ({"n_step": 0}, "n_step must be positive"),
        ({"capacity": 0}, "capacity must be positive"),
        ({"rows": 0}, "rows must be positive"),
        ({"stack": 4}, "stacks of 4 frames"),
        (
            {"stack": 4, "observation": tf.TensorSpec([4])},
            "frames or vectors, got",
        ),
        ({"stack": 3, "observation": tf.TensorSpec([4, 2])}, "stacks of 3 frames"),
        ({"stack": 0, "observation": tf.TensorSpec([0, 2])}, "stacks of 0 frames"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.quick("3")
@pytest.mark.parametrize("n_step", [1, 3])
def test_memory_is_flat(n_step):
    """Variables are changed in place: nothing grows, and nothing is copied."""

    observation = tf.TensorSpec([4, 64, 64], tf.uint8)
    selector = memories.Prioritized()
    replay = make(2, 4000, observation, selector=selector, stack=4, n_step=n_step)
    frames = tf.zeros([2, 4, 64, 64], tf.uint8)

    def train(time):
        items = replay.sample(4, tf.stack([time, 1]))
        replay.update(items["index"], items["reward"])

    @tf.function(autograph=False)
    def run():
        def body(time):
            done = tf.fill([2], time % 50 == 49)
            everyone, zeros = tf.range(2), tf.zeros([2], tf.int64)
            replay.append(
                everyone, frames, zeros, tf.ones([2]), done, ~done & done, frames
            )
            conditional.when(replay.size > 0, train, time)
            return time + 1

        tf.while_loop(lambda time: time < 500, body, [0], parallel_iterations=1)

    process = psutil.Process()
    for _ in range(5):
        run()
    before = process.memory_info().rss
    for _ in range(5):
        run()
    assert process.memory_info().rss - before < 5_000_000
    assert run.experimental_get_tracing_count() == 1


def test_stacks_without_a_first_dimension_are_refused():
    observation = {
        "frames": tf.TensorSpec([4, 8, 8], tf.uint8),
        "time": tf.TensorSpec([], tf.int64),
    }
    with pytest.raises(ValueError, match="expected stacks of 4 frames"):
        memories.Replay(observation, tf.TensorSpec([], tf.int64), 1, 10, stack=4)


def test_share_of_a_row_is_rounded_up():
    replay = make(rows=3, capacity=10)  # Four transitions for each row.
    for number in range(9):
        step(replay, 1, number)
    assert sorted(drawn(replay)) == [5, 6, 7, 8]
