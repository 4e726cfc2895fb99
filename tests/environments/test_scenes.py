"""Films that batches make of themselves, frame by frame."""

import gc
import weakref

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from videos import read

from agents import tools
from agents.environments import (
    Environment,
    compiled,
    functional,
    make,
    scenes,
    videos,
)
from agents.testing import mock_algorithm
from agents.tools import files, images

LOSSLESS = videos.Style(grid=True)  # The parts of a grid are.


class Line(functional.FunctionalEnv):
    """Counts steps from the number of the row; the picture is as bright as that."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    max_length = 5

    def initial(self, size, seed):
        row = tf.range(size)
        return {"time": tf.zeros_like(row), "row": row, "even": row % 2 == 0}

    def transition(self, state, action, seed):
        return {**state, "time": state["time"] + 1}

    def observation(self, state):
        return tf.cast(state["time"], tf.float32)[:, None]

    def reward(self, state, action, next_state):
        return tf.where(next_state["even"], 0.5, 2.0)

    def terminal(self, state):
        return (state["row"] == 1) & (state["time"] == 2)

    def render(self, state):
        level = 100 * state["row"].numpy() + 10 * state["time"].numpy()
        return np.full((len(level), 32, 40, 3), level[:, None, None, None], np.uint8)


class Whole(Line):
    """Draws by a function of TensorFlow."""

    @tf.function(autograph=False)
    def render(self, state):
        level = 100 * state["row"] + 10 * state["time"]
        pixels = tf.ones([32, 40, 3], tf.int32)
        return tf.cast(level[:, None, None, None] * pixels, tf.uint8)


def reels(directory, rows, episodes, style=LOSSLESS, fps=10):
    return [
        videos.Reel(directory, share, style, fps)
        for share in videos.shares(rows, episodes)
    ]


def rendered(directory, cls, rows, episodes, style=LOSSLESS):
    """Batch of functional environments that is filmed, and its reels."""
    made = reels(directory, rows, episodes, style)
    return scenes.Rendered(compiled.Compiled(cls(), rows), cls(), made), made


@pytest.mark.parametrize(("cls", "eager"), [(Line, 0), (Whole, 0), (Line, 1)])
def test_rendered_states_are_the_frames(tmp_path, cls, eager):
    env, made = rendered(tmp_path, cls, 2, 5)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    tf.config.run_functions_eagerly(bool(eager))
    try:
        for steps in (3, 1, 20):
            tools.simulate(env, agent, steps, training=False)
    finally:
        tf.config.run_functions_eagerly(False)
    assert env.steps == 48
    env.close()
    for row, (length, reward, count) in enumerate([(5, 0.5, 3), (2, 2.0, 2)]):
        score = length * reward
        names = [
            f"episode-{row + 2 * number}_return_{score:.1f}.mkv"
            for number in range(count)
        ]
        assert made[row].films == [
            {"file": name, "return": score, "length": length} for name in names
        ]
        for name in names:
            fps, frames = read(tmp_path / name)
            assert fps == 10
            levels = 100 * row + 10 * np.arange(length + 1)
            expected = np.broadcast_to(
                levels[:, None, None, None], (length + 1, 256, 320, 3)
            )
            np.testing.assert_array_equal(frames, expected)
    assert len(list(tmp_path.iterdir())) == 5


class Slow(Line):
    drawn = 0

    def render(self, state):
        Slow.drawn += 1
        return super().render(state)


def test_only_frames_of_videos_are_drawn(tmp_path):
    Slow.drawn = 0
    env, _ = rendered(tmp_path, Slow, 2, 2)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    tools.simulate(env, agent, 30, training=False)
    assert Slow.drawn == 1 + 1 + 5  # The trial, the first states, and those after.


def test_render_that_returns_no_pictures(tmp_path):
    class Wrong(Line):
        def render(self, state):
            return tf.zeros([2, 32, 40])

    with pytest.raises(videos.RenderError) as error:
        rendered(tmp_path, Wrong, 2, 2)
    assert str(error.value) == (
        "render() must return uint8 [2, height, width, 3] for 2 states, got float32 "
        "[2, 32, 40]"
    )

    class Failing(Line):
        def render(self, state):
            if state["time"].numpy().any():
                raise LookupError("no color")
            return super().render(state)

    env, _ = rendered(tmp_path, Failing, 2, 2)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    with pytest.raises(
        videos.RenderError, match="^render\\(\\) failed: LookupError: no c"
    ):
        tools.simulate(env, agent, 30, training=False)
    env.close()
    assert list(tmp_path.iterdir()) == []


# The library leaves the pipe open when ffmpeg has ended.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_full_disk_is_one_line(tmp_path, full_disk):
    class Noise(Line):
        max_length = 1000

        def terminal(self, state):
            return state["time"] < 0

        def render(self, state):
            shape = [2, 400, 400, 3]
            return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)

    env, _ = rendered(tmp_path, Noise, 2, 2)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    with (
        full_disk(1000),
        pytest.raises(files.WriteError, match="ffmpeg has ended") as error,
    ):
        tools.simulate(env, agent, 500, training=False)
    assert "\n" not in str(error.value)
    env.close()


def pong(**kwargs):
    """Pong as in the configs, with other settings."""
    settings = {"noop_max": 0, "use_fire_reset": False, "reward_clipping": False}
    kwargs = {**settings, "repeat_action_probability": 0.0, **kwargs}
    return Environment("ALE/Pong-v5", "vector", 2, max_length=6, kwargs=kwargs)


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({}, (336, 336)),
        ({"stack_num": 2, "grayscale": False}, (336, 336)),
        ({"stack_num": 1, "img_height": 210, "img_width": 160}, (420, 320)),
    ],
)
def test_frames_of_atari_are_its_newest_observations(tmp_path, kwargs, shape):
    pytest.importorskip("ale_py")
    batch = make.batch(pong(**kwargs))
    made = reels(tmp_path, 2, 3, fps=15)
    inner = tools.InGraphBatchEnv(batch)
    env = scenes.Observed(inner, images.channels_last, made)
    env.discontinue(np.arange(2))
    before, seen = env.begin(), [[], []]
    for step in range(13):
        last = before.observation.numpy()
        action = tf.constant([step % 6, 2], tf.int64)
        after, before = env.simulate(before, action)
        for row in range(2):
            seen[row].append(last[row])
            if after.done[row]:
                seen[row].append(after.observation[row].numpy())
    env.close()
    films = [entry for reel in made for entry in reel.films]
    assert [entry["length"] for entry in films] == [6, 6, 6]
    episodes = [seen[0][:7], seen[0][7:14], seen[1][:7]]
    for entry, episode in zip(films, episodes, strict=True):
        fps, frames = read(tmp_path / entry["file"])
        assert fps == 15
        assert frames.shape == (7, *shape, 3)
        newest = np.stack(episode)[:, -1]
        if newest.ndim == 3:
            newest = np.repeat(newest[..., None], 3, -1)
        factor = shape[0] // newest.shape[1]
        np.testing.assert_array_equal(frames[:, ::factor, ::factor], newest)
        assert (frames[1] != frames[-1]).any()


def test_films_leave_no_batch_behind(tmp_path):
    env, _ = rendered(tmp_path, Line, 2, 2)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    tools.simulate(env, agent, 3, training=False)
    env.close()
    reference = weakref.ref(env)
    del env
    gc.collect()
    assert reference() is None
