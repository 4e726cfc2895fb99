"""The command that films episodes."""

import json
import os
import re
import shutil
import subprocess

import gymnasium
import numpy as np
import pytest
from PIL import Image
from videos import read

from agents.environments import Environment, make
from agents.experiments import filming
from agents.scripts import evaluate, report, visualize

pytestmark = pytest.mark.usefixtures("headless")


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


def test_earlier_videos_stay_until_there_are_new_ones(trained, fresh, call, tmp_path):
    outdir = tmp_path / "videos"
    arguments = "--outdir", outdir, "--num_episodes", 1
    assert call(visualize, "--logdir", trained[0], *arguments)[0] == 0
    before = {path: path.read_bytes() for path in outdir.iterdir()}
    dark = fresh("environment.id=environments_for_tests:without_render_mode")
    code, _, errors = call(visualize, "--logdir", dark, *arguments)
    assert code == 2
    assert "cannot film" in errors
    assert {path: path.read_bytes() for path in outdir.iterdir()} == before


def test_videos_replace_those_of_an_earlier_call(fresh, call, tmp_path):
    run = fresh("environment.id=environments_for_tests:counting")
    outdir = tmp_path / "videos"
    outdir.mkdir()
    (outdir / "mine.mp4").write_text("")
    arguments = "--logdir", run, "--outdir", outdir
    for episodes in (3, 1):
        code, _, errors = call(visualize, *arguments, "--num_episodes", episodes)
        assert (code, errors) == (0, "")
        index = json.loads((outdir / "episodes.json").read_text())
        assert len(index) == episodes
        assert {path.name for path in outdir.iterdir()} == {
            *("episodes.json", "mine.mp4"),
            *(episode["file"] for episode in index),
        }


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("draws_nothing", "render() must return an RGB image, got NoneType"),
        ("without_render_mode", "argument 'render_mode'; let it take one, and return"),
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


@pytest.mark.parametrize("backend", ["compiled", "auto"])
def test_environments_that_cannot_be_filmed(call, fresh, tmp_path, backend):
    id = "agents.environments.functional:Catch"
    run = fresh(f"environment.id={id}", f"environment.backend={backend}")
    code, _, errors = call(visualize, "--logdir", run, "--outdir", tmp_path / "out")
    assert code == 2
    assert errors == (
        f"error: environment {id!r} of backend compiled cannot be filmed: Gymnasium has "
        "no single environment with the same spaces; give its class a method "
        "render(state), or let it observe an image (uint8, at least 36 pixels wide and "
        "high).\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_robots_of_envpool_are_filmed(fresh, call, tmp_path):
    """Its actions have another precision than those of Gymnasium."""
    pytest.importorskip("envpool")
    settings = ("environment.max_length=9", "environment.backend=envpool")
    run = fresh("environment.id=HalfCheetah-v5", *settings)
    outdir = tmp_path / "out"
    arguments = "--logdir", run, "--outdir", outdir, "--num_episodes", 1
    code, _, errors = call(visualize, *arguments)
    assert code == 0, errors
    (episode,) = json.loads((outdir / "episodes.json").read_text())
    assert len(read(outdir / episode["file"])[1]) == 10


def brightness(path):
    """Frames per second of a video, and brightness of its frames."""
    fps, frames = read(path)
    return fps, frames.mean((1, 2, 3))


@pytest.fixture
def pong(fresh):
    """Run that plays Pong from images, cut short, with new weights."""
    pytest.importorskip("ale_py")
    few = "environment.max_length=7", "environment.num_agents=2"
    network = "algorithm.network={convolutions: [[4, 8, 8]], layers: [8]}"
    return fresh(*few, network, name="atari_pong")


def test_atari_is_filmed_as_the_policy_sees_it(pong, call, tmp_path):
    arguments = "--logdir", pong, "--outdir", tmp_path, "--num_episodes", 3
    code, output, errors = call(visualize, *arguments, "--stochastic")
    assert (code, errors) == (0, "")
    episodes = json.loads((tmp_path / "episodes.json").read_text())
    assert [episode["length"] for episode in episodes] == [7, 7, 7]
    assert [episode["return"] for episode in episodes] == [0, 0, 0]
    for episode in episodes:
        assert str(tmp_path / episode["file"]) in output
        fps, frames = read(tmp_path / episode["file"])
        assert fps == 15
        assert frames.shape == (8, 336, 336, 3)
        assert frames[0].std() > 5
        blocks = frames.reshape(8, 84, 4, 84, 4, 3).astype(int)
        assert np.median(np.ptp(blocks, axis=(2, 4))) < 8  # Pixels of the game.
        assert (frames[0] != frames[-1]).any()


@pytest.mark.slow
def test_atari_with_all_options(pong, call, tmp_path):
    outdir = tmp_path / "out"
    arguments = "--logdir", pong, "--outdir", outdir, "--num_episodes", 2
    code, _, errors = call(visualize, *arguments, "--overlay", "--grid")
    assert (code, errors) == (0, "")
    assert {path.name for path in outdir.iterdir()} == {"episodes.json", "grid.mp4"}
    fps, frames = read(outdir / "grid.mp4")
    assert fps == 15
    assert frames.shape == (8, 336, 672, 3)
    code, _, errors = call(visualize, *arguments, "--format", "gif")
    assert (code, errors) == (0, "")
    episodes = json.loads((outdir / "episodes.json").read_text())
    for episode in episodes:
        with Image.open(outdir / episode["file"]) as image:
            assert (image.n_frames, image.size) == (8, (336, 336))
    code, output, errors = call(visualize, "--logdir", pong, "--live")
    assert (code, output) == (2, "")
    assert errors == (
        "error: cannot show 'ALE/Pong-v5': it has no window; write videos by --outdir "
        "instead of --live.\n"
    )


def test_report_shows_atari(pong, call, tmp_path):
    line = {"phase": "evaluate", "step": 0, "score": 1.0, "length": 7.0}
    (pong / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    code, _, errors = call(report, pong, "--outdir", tmp_path)
    assert (code, errors) == (0, "")
    text = (tmp_path / "index.html").read_text()
    assert "No video" not in text
    assert "return 0.0, 7 steps" in text


def test_returns_of_images_are_raw(call, fresh, tmp_path):
    run = fresh(
        "environment.id=environments_for_tests:pictures",
        *("environment.backend=vector", "environment.kwargs={fps: 20}"),
        *("algorithm.normalize_rewards=clip", "algorithm.reward_clip=0.5"),
    )
    arguments = "--logdir", run, "--outdir", tmp_path, "--num_episodes", 5
    code, _, errors = call(visualize, *arguments)
    assert (code, errors) == (0, "")
    episodes = json.loads((tmp_path / "episodes.json").read_text())
    assert [episode["return"] for episode in episodes] == [10.0] * 5
    for number, episode in enumerate(episodes):
        assert episode["file"] == f"episode-{number}_return_10.0.mp4"
        fps, levels = brightness(tmp_path / episode["file"])
        assert fps == 20
        np.testing.assert_allclose(levels, 40 + 4 * np.arange(11), atol=1.5)


@pytest.mark.slow
def test_functional_environments_draw_themselves(run, fresh, tmp_path):
    logdir = fresh("environment.id=environments_for_tests:Drawn")
    arguments = "--logdir", logdir, "--outdir", tmp_path / "out", "--num_episodes", 3
    code, _, errors = run("visualize", *arguments, "--grid")
    assert (code, errors) == (0, "")
    episodes = json.loads((tmp_path / "out" / "episodes.json").read_text())
    assert [episode["length"] for episode in episodes] == [9, 9, 9]
    assert {episode["return"] for episode in episodes} <= {-1.0, 1.0}
    fps, frames = read(tmp_path / "out" / "grid.mp4")
    assert fps == 12
    assert frames.shape == (10, 480, 720, 3)
    for column, row in ((0, 0), (1, 0), (0, 1)):
        cells = frames[:, row * 240 :, column * 360 :][:, :240, :360]
        levels = 40 + 4 * np.arange(10)
        np.testing.assert_allclose(cells.mean((1, 2, 3)), levels, atol=1.5)


def test_functional_episodes_are_those_of_evaluate(fresh, call, tmp_path):
    run = fresh("environment.id=agents.environments.functional:GridWorld")
    arguments = "--logdir", run, "--num_episodes", 1, "--seed", 1
    code, output, errors = call(evaluate, *arguments)
    assert (code, errors) == (0, "")
    result = json.loads(output)
    code, _, errors = call(visualize, *arguments, "--outdir", tmp_path, "--overlay")
    assert (code, errors) == (0, "")
    (episode,) = json.loads((tmp_path / "episodes.json").read_text())
    np.testing.assert_allclose(episode["return"], result["mean_return"], rtol=1e-5)
    assert episode["length"] == result["mean_length"]
    fps, frames = read(tmp_path / episode["file"])
    assert fps == 5
    assert frames.shape == (episode["length"] + 1, 320, 320, 3)


def test_functional_environment_that_draws_nothing(call, fresh, tmp_path):
    id = "environments_for_tests:DrawsNothing"
    run = fresh(f"environment.id={id}")
    code, _, errors = call(visualize, "--logdir", run, "--outdir", tmp_path / "out")
    assert code == 2
    assert errors.startswith(
        f"error: cannot film {id!r}: render() must return uint8 [2, height, width, 3]"
    )
    assert errors.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "visible"),
    [
        ((), [True, True, True, True]),
        (("environment.kwargs={camera_id: -1}",), [True, False, False, False]),
    ],
)
def test_robots_stay_in_the_picture(call, fresh, tmp_path, settings, visible):
    wrapper = "environments_for_tests:Moved"  # Carries the robot away.
    run = fresh(
        *("environment.id=HalfCheetah-v5", f"environment.wrappers=[{wrapper!r}]"),
        *("environment.max_length=3", *settings),
    )
    arguments = "--logdir", run, "--outdir", tmp_path, "--num_episodes", 1
    code, _, errors = call(visualize, *arguments)
    assert (code, errors) == (0, "")
    (episode,) = json.loads((tmp_path / "episodes.json").read_text())
    _, frames = read(tmp_path / episode["file"])
    red, _, blue = np.moveaxis(frames.astype(int), -1, 0)
    orange = (red - blue > 60).sum((1, 2))  # The color of the robot.
    assert (orange > 500).tolist() == visible


def test_tasks_of_backend_mujoco_are_filmed_with_their_arguments(call, fresh, tmp_path):
    run = fresh(
        *("environment.id=Hopper-v5", "environment.backend=mujoco"),
        *("environment.kwargs={exclude_current_positions_from_observation: false}",),
        "environment.max_length=3",
    )
    arguments = "--logdir", run, "--outdir", tmp_path, "--num_episodes", 1
    code, _, errors = call(visualize, *arguments)
    assert (code, errors) == (0, "")


def test_compiled_environments_are_filmed_by_their_equals(call, fresh, tmp_path):
    run = fresh("environment.backend=compiled")
    code, _, errors = call(
        *(visualize, "--logdir", run, "--outdir", tmp_path / "out"),
        *("--num_episodes", 1),
    )
    assert code == 0, errors
    assert len(list((tmp_path / "out").glob("*.mp4"))) == 1


def test_window_without_a_display_is_one_line(trained, call):
    code, output, errors = call(visualize, "--logdir", trained[0], "--live")
    assert (code, output) == (2, "")
    assert errors.startswith("error: cannot show 'CartPole-v1': there is no display")
    assert errors.count("\n") == 1


@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="needs Xvfb")
def test_window_shows_episodes(trained, call, monkeypatch):
    read_end, write_end = os.pipe()
    server = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "800x600x24"]
    with subprocess.Popen(server, pass_fds=[write_end], stderr=-3) as process:
        os.close(write_end)
        with open(read_end) as display:
            monkeypatch.setenv("DISPLAY", f":{display.readline().strip()}")
        arguments = ["--logdir", trained[0], "--num_episodes", 1, "--live"]
        code, output, errors = call(visualize, *arguments)
        process.terminate()
    assert (code, errors) == (0, "")
    (line,) = output.splitlines()
    assert re.fullmatch(r"return +\d+\.0  \d+ steps", line)


def test_episodes_side_by_side_with_text(trained, call, tmp_path):
    code, _, errors = call(
        *(visualize, "--logdir", trained[0], "--outdir", tmp_path),
        *("--num_episodes", 2, "--grid", "--overlay"),
    )
    assert (code, errors) == (0, "")
    episodes = json.loads((tmp_path / "episodes.json").read_text())
    assert [episode["file"] for episode in episodes] == ["grid.mp4"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {"episodes.json", "grid.mp4"}
    _, frames = read(tmp_path / "grid.mp4")
    longest = max(episode["length"] for episode in episodes)
    assert frames.shape == (longest + 1, 400, 1200, 3)


@pytest.mark.parametrize(
    ("kwargs", "kept"),
    [({"max_num_players": 1}, {}), ({"sutton_barto_reward": True}, True)],
)
def test_arguments_of_envpool_alone_are_left_out(kwargs, kept):
    pytest.importorskip("envpool")
    plain = Environment("CartPole-v1", "serial")
    environment = Environment("CartPole-v1", "envpool", kwargs=kwargs)
    found = filming.find(environment, make.describe(plain))
    assert found._environment.kwargs == (kwargs if kept else {})
