"""Films of environments: every frame, and how they are drawn."""

import ctypes.util

import gymnasium
import numpy as np
import pytest
import robots
from videos import read

from agents.environments import Environment, film, make, videos
from agents.tools import files

pytestmark = pytest.mark.usefixtures("headless")


def constructor(name, max_length):
    """Of an environment that is filmed."""
    environment = Environment(
        name, max_length=max_length, kwargs={"render_mode": "rgb_array"}
    )
    return make.constructor(environment)


def play(batch, steps):
    """Step environments by random actions, resetting those that are done."""
    batch.action_space.seed(0)
    batch.reset(seeds=np.arange(len(batch)))
    for _ in range(steps):
        actions = np.stack([batch.action_space.sample() for _ in range(len(batch))])
        _, _, terminated, truncated, _ = batch.step(actions)
        if done := np.flatnonzero(terminated | truncated).tolist():
            batch.reset(done)


def test_every_frame_is_one_observation(tmp_path):
    made = constructor("environments_for_tests:counting", 7)
    (tmp_path / ".unfinished-9.mp4").touch()
    (tmp_path / "episode-9_return_0.0.mp4").touch()
    videos.clean(tmp_path)
    batch = film.batch(made, tmp_path, rows=2, episodes=3)
    play(batch, steps=30)
    films = [batch[0].films, batch[1].films]
    batch.close()
    names = [f"episode-{number}_return_7.0.mp4" for number in range(3)]
    entries = [{"file": name, "return": 7.0, "length": 7} for name in names]
    assert films == [[entries[0], entries[2]], [entries[1]]]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        fps, frames = read(tmp_path / name)
        assert fps == 25
        assert frames.shape == (8, 62, 92, 3)  # Sides are made even.
        expected = 40 + 4 * np.arange(8)
        np.testing.assert_allclose(frames.mean((1, 2, 3)), expected, atol=1.5)
    videos.require_whole(tmp_path, entries)
    path = tmp_path / names[1]
    path.write_bytes(path.read_bytes()[:-300])  # What a full disk leaves.
    with pytest.raises(files.WriteError) as error:
        videos.require_whole(tmp_path, entries)
    assert str(error.value).startswith(
        f"cannot write {path}: it got 0 of 8 frames; it "
    )
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], names[2]]


class Drawing(gymnasium.Env):
    """Draws what it is told to."""

    def __init__(self, image):
        self.image = image

    def render(self):
        return self.image


@pytest.mark.parametrize(
    ("image", "got"),
    [
        (None, "got NoneType None"),
        (np.zeros((8, 6), np.uint8), r"got uint8 \[8, 6\]"),
        (np.zeros((8, 6, 1), np.uint8), r"got uint8 \[8, 6, 1\]"),
        (np.full((8, 6, 3), 0.9), r"got float64 \[8, 6, 3\]"),
        (np.full((8, 6, 3), 300), r"got int64 \[8, 6, 3\]"),
    ],
)
def test_pictures_of_other_types_and_shapes_are_refused(image, got):
    message = rf"must return an RGB image, {got}; use uint8 \[height, width, 3\]$"
    with pytest.raises(videos.RenderError, match=message):
        film.frame(Drawing(image))
    right = np.zeros((8, 6, 4), np.uint8)
    assert film.frame(Drawing(right)).shape == (8, 6, 3)


@pytest.mark.parametrize(
    "metadata", [None, {}, {"render_fps": None}, {"render_fps": "9"}]
)
def test_rates_that_are_unknown_have_a_default(tmp_path, metadata):
    env = Drawing(np.zeros((8, 6, 3), np.uint8))
    env.reset = lambda **kwargs: (0, {})
    env.step = lambda action: (0, 1.0, True, False, {})
    env.metadata = metadata
    made = film.Film(env, tmp_path, range(1), videos.PLAIN)
    made.reset()
    made.step(0)
    assert read(tmp_path / made.films[0]["file"])[0] == 30


def test_incomplete_episodes_leave_nothing(tmp_path):
    made = constructor("environments_for_tests:counting", 7)
    batch = film.batch(made, tmp_path, rows=1, episodes=2)
    play(batch, steps=10)
    batch.reset([0])  # Leaves the second episode, which is filmed again.
    play(batch, steps=3)
    batch.close()
    assert [path.name for path in tmp_path.iterdir()] == ["episode-0_return_7.0.mp4"]


@pytest.mark.skipif(
    not (ctypes.util.find_library("EGL") or ctypes.util.find_library("OSMesa")),
    reason="needs libegl1 or libosmesa6",
)
@pytest.mark.parametrize("id", ["HalfCheetah-v5", robots.Calm])
def test_mujoco_without_display(tmp_path, id):
    made = constructor(id, 12)
    batch = film.batch(made, tmp_path, rows=1, episodes=1)
    play(batch, steps=12)
    (entry,) = batch[0].films
    batch.close()
    _, frames = read(tmp_path / entry["file"])
    assert len(frames) == entry["length"] + 1 == 13
    assert frames.std() > 5
    assert (frames[0] != frames[-1]).any()


def robot_is_visible(frames):
    """Whether there are pixels of the robot's color, which is orange."""
    red, _, blue = np.moveaxis(frames.astype(int), -1, 0)
    return (red - blue > 60).sum((1, 2)) > 500


@pytest.mark.skipif(
    not (ctypes.util.find_library("EGL") or ctypes.util.find_library("OSMesa")),
    reason="needs libegl1 or libosmesa6",
)
def test_camera_follows_robots_that_gymnasium_does_not_follow(tmp_path):
    tracked, moved = f"{film.__name__}:tracked", "environments_for_tests:Moved"
    views = {}
    for wrappers in ([moved], [tracked, moved]):
        environment = Environment(
            *("HalfCheetah-v5", "workers"),
            max_length=3,
            wrappers=wrappers,
            kwargs={"render_mode": "rgb_array"},
        )
        made = make.constructor(environment)
        directory = tmp_path / str(len(wrappers))
        directory.mkdir()
        batch = film.batch(made, directory, rows=1, episodes=1)
        play(batch, steps=3)
        _, frames = read(directory / batch[0].films[0]["file"])
        batch.close()
        views[len(wrappers)] = robot_is_visible(frames).tolist()
    assert views == {1: [True, False, False, False], 2: [True] * 4}


@pytest.mark.parametrize(
    ("id", "kwargs", "camera"),
    [
        *((f"{name}-v5", {}, 0) for name in ("HalfCheetah", "Ant", "Swimmer")),
        *((f"{name}-v5", {}, -1) for name in ("Hopper", "Pusher", "InvertedPendulum")),
        ("HalfCheetah-v5", {"default_camera_config": {"trackbodyid": 2}}, -1),
    ],
)
def test_cameras_of_robots(id, kwargs, camera):
    env = gymnasium.make(id, render_mode="rgb_array", **kwargs)
    before = env.unwrapped.mujoco_renderer.default_cam_config
    assert film.tracked(env) is env
    renderer = env.unwrapped.mujoco_renderer
    assert renderer.camera_id == camera
    fixed = {"type": 2, "fixedcamid": 0}  # For windows.
    expected = {**(before or {}), **fixed} if camera == 0 else before
    assert renderer.default_cam_config == expected
    env.close()


def test_environments_without_mujoco_keep_their_view():
    env = gymnasium.make("CartPole-v1")
    assert film.tracked(env) is env


def test_mujoco_without_graphics_names_the_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("MUJOCO_GL", "glfw")  # Needs a display.
    made = constructor("HalfCheetah-v5", 12)
    with pytest.raises(
        videos.RenderError, match="libegl1.*libosmesa6.*glfw: "
    ) as error:
        film.batch(made, tmp_path, rows=1, episodes=1)
    assert "\n" not in str(error.value)


def test_backends_are_tried_in_order(monkeypatch):
    tried = []

    def attempt(constructor, variables, timeout):
        tried.append(variables)
        working = variables.get("MUJOCO_GL") == "osmesa"
        return (None if working else "ImportError: none", uses_mujoco)

    monkeypatch.setattr(film, "_attempt", attempt)
    egl, osmesa = [
        {"MUJOCO_GL": name, "SDL_VIDEODRIVER": "dummy"} for name in ("egl", "osmesa")
    ]
    uses_mujoco = True
    assert film._find_variables(None, 60.0) == osmesa
    assert tried == [egl, osmesa]
    uses_mujoco = False  # Then none of them matters.
    with pytest.raises(videos.RenderError, match="^ImportError: none$"):
        film._find_variables(None, 60.0)
    uses_mujoco = True
    tried.clear()
    monkeypatch.setenv("DISPLAY", ":0")
    film._find_variables(None, 60.0)
    assert tried == [{}, {"MUJOCO_GL": "egl"}, {"MUJOCO_GL": "osmesa"}]
    tried.clear()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(videos.RenderError, match="egl: ImportError: none"):
        film._find_variables(None, 60.0)
    assert tried == [{}]


def test_masked_cartpole_can_be_filmed_and_hides_velocities(tmp_path):
    name = "agents.environments.masked:cartpole"
    env = make.constructor(Environment(name))()
    full = gymnasium.make("CartPole-v1")
    visible, _ = env.reset(seed=1)
    observation, _ = full.reset(seed=1)
    for _ in range(5):
        assert visible.tolist() == observation[[0, 2]].tolist()
        assert visible in env.observation_space
        visible, observation = env.step(0)[0], full.step(0)[0]
    assert make.describe(Environment(name)).max_length == 500
    batch = film.batch(constructor(name, 5), tmp_path, rows=1, episodes=1)
    play(batch, steps=5)
    assert len(read(tmp_path / batch[0].films[0]["file"])[1]) == 6
    batch.close()
