"""The command that films episodes."""

import json
import os
import re
import shutil
import subprocess

import gymnasium
import pytest
from videos import read

from agents.scripts import evaluate, visualize

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
