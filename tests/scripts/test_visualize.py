import ctypes.util
import json
import pathlib
import re
import subprocess

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest

from agents.environments import film, make
from agents.scripts import evaluate, visualize
from agents.tools import files

RGB = {"render_mode": "rgb_array"}


@pytest.fixture(autouse=True)
def headless(monkeypatch):
    """No display and nothing set by hand."""
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def read(path):
    """Frames per second of a video, and frames uint8 `[T, height, width, 3]`."""
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo"]
    result = subprocess.run(
        [*ffmpeg, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True
    )
    pattern = r"Video: h264.*, (\d+)x(\d+).*, ([\d.]+) fps"
    width, height, fps = re.search(pattern, result.stderr.decode()).groups()
    frames = np.frombuffer(result.stdout, np.uint8)
    return float(fps), frames.reshape(-1, int(height), int(width), 3)


def play(batch, steps):
    """Step environments by random actions, resetting those that are done."""
    batch.action_space.seed(0)
    batch.reset(seeds=np.arange(len(batch)))
    for _ in range(steps):
        actions = np.stack([batch.action_space.sample() for _ in range(len(batch))])
        _, _, terminated, truncated, _ = batch.step(actions)
        if done := np.flatnonzero(terminated | truncated).tolist():
            batch.reset(done)


def test_every_episode_of_a_run_is_filmed(trained, run, tmp_path):
    logdir, _, _ = trained
    before = {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()}
    arguments = ["--logdir", logdir, "--outdir", tmp_path / "new" / "videos"]
    code, output, errors = run("visualize", *arguments, "--num_episodes", 3)
    assert (code, errors) == (0, "")
    outdir = tmp_path / "new" / "videos"
    index = outdir / "episodes.json"
    assert output.splitlines()[-1] == f"Wrote {index}"
    episodes = json.loads(index.read_text())
    assert len(episodes) == 3
    assert {path.name for path in outdir.iterdir()} == {
        "episodes.json",
        *(episode["file"] for episode in episodes),
    }
    expected = gymnasium.spec("CartPole-v1").make().metadata["render_fps"]
    for number, episode in enumerate(episodes):
        assert list(episode) == ["file", "return", "length"]
        assert episode["file"].startswith(f"episode-{number}_return_")
        assert episode["return"] == episode["length"] > 0
        assert str(outdir / episode["file"]) in output
        fps, frames = read(outdir / episode["file"])
        assert fps == expected
        assert len(frames) == episode["length"] + 1
        assert frames[0].std() > 5
        assert (frames[0] != frames[-1]).any()
    after = {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()}
    assert after == before


def test_episodes_are_those_of_evaluate(trained, call, tmp_path):
    arguments = ["--logdir", trained[0], "--num_episodes", 1, "--seed", 3]
    arguments += ["--checkpoint", "step-000000000256", "--stochastic"]
    code, output, errors = call(evaluate, *arguments)
    assert (code, errors) == (0, "")
    result = json.loads(output)
    code, _, errors = call(visualize, *arguments, "--outdir", tmp_path)
    assert (code, errors) == (0, "")
    (episode,) = json.loads((tmp_path / "episodes.json").read_text())
    assert episode["return"] == result["mean_return"]
    assert episode["length"] == result["mean_length"]


def test_every_frame_is_one_observation(tmp_path):
    constructor = make.constructor("environments_for_tests:counting", 7, RGB)
    (tmp_path / ".unfinished-9.mp4").touch()
    (tmp_path / "episode-9_return_0.0.mp4").touch()
    film.clean(tmp_path)
    batch = film.batch(constructor, tmp_path, rows=2, episodes=3)
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
    film.require_whole(tmp_path, entries)
    path = tmp_path / names[1]
    path.write_bytes(path.read_bytes()[:-300])  # What a full disk leaves.
    with pytest.raises(files.WriteError) as error:
        film.require_whole(tmp_path, entries)
    assert str(error.value).startswith(
        f"cannot write {path}: it got 0 of 8 frames; it "
    )
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], names[2]]


def test_incomplete_episodes_leave_nothing(tmp_path):
    constructor = make.constructor("environments_for_tests:counting", 7, RGB)
    batch = film.batch(constructor, tmp_path, rows=1, episodes=2)
    play(batch, steps=10)
    batch.reset([0])  # Leaves the second episode, which is filmed again.
    play(batch, steps=3)
    batch.close()
    assert [path.name for path in tmp_path.iterdir()] == ["episode-0_return_7.0.mp4"]


@pytest.mark.skipif(
    not (ctypes.util.find_library("EGL") or ctypes.util.find_library("OSMesa")),
    reason="needs libegl1 or libosmesa6",
)
def test_mujoco_without_display(tmp_path):
    constructor = make.constructor("HalfCheetah-v5", 12, RGB)
    batch = film.batch(constructor, tmp_path, rows=1, episodes=1)
    play(batch, steps=12)
    (entry,) = batch[0].films
    batch.close()
    _, frames = read(tmp_path / entry["file"])
    assert len(frames) == entry["length"] + 1 == 13
    assert frames.std() > 5
    assert (frames[0] != frames[-1]).any()


def test_mujoco_without_graphics_names_the_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("MUJOCO_GL", "glfw")  # Needs a display.
    constructor = make.constructor("HalfCheetah-v5", 12, RGB)
    with pytest.raises(film.RenderError, match="libegl1.*libosmesa6.*glfw: ") as error:
        film.batch(constructor, tmp_path, rows=1, episodes=1)
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
    with pytest.raises(film.RenderError, match="^ImportError: none$"):
        film._find_variables(None, 60.0)
    uses_mujoco = True
    tried.clear()
    monkeypatch.setenv("DISPLAY", ":0")
    film._find_variables(None, 60.0)
    assert tried == [{}, {"MUJOCO_GL": "egl"}, {"MUJOCO_GL": "osmesa"}]
    tried.clear()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(film.RenderError, match="egl: ImportError: none"):
        film._find_variables(None, 60.0)
    assert tried == [{}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("draws_nothing", "render() must return an RGB image, got NoneType"),
        ("without_render_mode", "unexpected keyword argument 'render_mode'"),
    ],
)
def test_environment_that_cannot_be_drawn(name, message, fresh, call, tmp_path):
    environment = f"environments_for_tests:{name}"
    run = fresh(f"environment.id={environment}")
    outdir = tmp_path / "videos"
    code, output, errors = call(visualize, "--logdir", run, "--outdir", outdir)
    assert (code, output) == (2, "")
    assert errors.startswith(f"error: cannot film '{environment}': ")
    assert message in errors
    assert errors.count("\n") == 1
    assert list(outdir.iterdir()) == []


def test_masked_cartpole_can_be_filmed_and_hides_velocities(tmp_path):
    name = "agents.environments.masked:cartpole"
    env = make.constructor(name)()
    full = gymnasium.make("CartPole-v1")
    visible, _ = env.reset(seed=1)
    observation, _ = full.reset(seed=1)
    for _ in range(5):
        assert visible.tolist() == observation[[0, 2]].tolist()
        assert visible in env.observation_space
        visible, observation = env.step(0)[0], full.step(0)[0]
    assert make.describe(name).max_length == 500
    batch = film.batch(make.constructor(name, 5, RGB), tmp_path, rows=1, episodes=1)
    play(batch, steps=5)
    assert len(read(tmp_path / batch[0].films[0]["file"])[1]) == 6
    batch.close()


@pytest.mark.parametrize(
    ("id", "backend"),
    [
        ("agents.environments.functional:Catch", "compiled"),
        ("agents.environments.functional:Catch", "auto"),
        ("ALE/Pong-v5", "auto"),
    ],
)
def test_environments_that_cannot_be_filmed(call, fresh, tmp_path, id, backend):
    run = fresh(f"environment.id={id}", f"environment.backend={backend}")
    code, _, errors = call(visualize, "--logdir", run, "--outdir", tmp_path / "out")
    assert code == 2
    assert f"'{id}'" in errors
    assert "cannot be filmed" in errors
    assert len(errors.splitlines()) == 1


def test_compiled_environments_are_filmed_by_their_equals(call, fresh, tmp_path):
    run = fresh("environment.backend=compiled")
    code, _, errors = call(
        *(visualize, "--logdir", run, "--outdir", tmp_path / "out"),
        *("--num_episodes", 1),
    )
    assert code == 0, errors
    assert len(list((tmp_path / "out").glob("*.mp4"))) == 1
