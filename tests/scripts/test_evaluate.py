"""The command that evaluates runs."""

import json
import shutil
import types

import numpy as np
import pytest
from gymnasium.envs import classic_control

from agents.experiments import evaluation, named, runs
from agents.scripts import evaluate, visualize
from agents.testing import algorithms
from agents.tools import config_files, loop

KEYS = ["episodes", "mean_return", "std_return", "mean_length", "step"]


def result(answer):
    """JSON of the last line of an answer, which must have succeeded."""
    code, output, errors = answer
    assert (code, errors) == (0, "")
    return json.loads(output.splitlines()[-1])


def test_last_line_is_json(trained, run):
    values = result(run("evaluate", "--logdir", trained[0], "--num_episodes", 6))
    assert list(values) == KEYS
    assert values["episodes"] == 6
    assert values["step"] == 512
    assert 0 < values["mean_return"] == values["mean_length"] <= 40
    assert values["std_return"] >= 0


def test_checkpoint_and_seed_are_chosen(trained, call):
    run, _, _ = trained
    name = "step-000000000256"
    arguments = ["--logdir", run, "--num_episodes", 5]
    first = result(call(evaluate, *arguments, "--checkpoint", name))
    assert first["step"] == 256
    assert first == result(call(evaluate, *arguments, "--checkpoint", name))
    scores = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["phase"] == "evaluate":
            scores.setdefault(row["score"], row["step"])
    best = result(call(evaluate, *arguments, "--checkpoint", "best"))
    assert best["step"] == scores[max(scores)]
    sampled = [
        result(call(evaluate, *arguments, "--stochastic", "--seed", seed))
        for seed in (0, 1)
    ]
    assert sampled[0]["step"] == 512
    assert sampled[0]["mean_return"] != sampled[1]["mean_return"]


def test_default_is_twenty_episodes(trained, call):
    assert result(call(evaluate, "--logdir", trained[0]))["episodes"] == 20


def test_policy_is_frozen(trained, tmp_path, monkeypatch, call):
    run = shutil.copytree(trained[0], tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    agents = []
    build = runs.algorithm

    def remember(*arguments):
        agents.append(build(*arguments))
        return agents[-1]

    monkeypatch.setattr(runs, "algorithm", remember)
    for arguments in ([], ["--stochastic"]):
        result(call(evaluate, "--logdir", run, "--num_episodes", 4, *arguments))
        agent = agents.pop()
        config = named.load(str(run / "config.yaml"))
        restored = build(config, runs.describe(config), 4)
        runs.restore(run, restored)
        ours, theirs = (algorithms._values(x) for x in (agent, restored))
        assert {"observations", "rewards", "network", "generator"} < {
            name.partition("/")[0] for name in ours
        }
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before


def test_what_has_no_probabilities_is_not_sampled(fresh, call, tmp_path):
    run = fresh("environment.backend=serial", name="cartpole_dqn")
    arguments = ["--logdir", run, "--num_episodes", 1, "--stochastic"]
    outdir = ["--outdir", tmp_path / "videos"]
    for script, more in ((evaluate, []), (visualize, outdir)):
        code, output, errors = call(script, *arguments, *more)
        assert (code, output) == (2, "")
        assert errors == (
            "error: --stochastic: DQN has no probabilities to sample actions by; take "
            "the best ones.\n"
        )
    assert not (tmp_path / "videos").exists()


def test_replay_memory_is_neither_made_nor_read(fresh, call):
    """Nor does the number of agents matter, of which the memory has a share each."""
    settings = "environment.backend=serial", "environment.num_agents=4"
    run = fresh(*settings, "algorithm.n_step=3", name="cartpole_dqn")
    (path,) = (run / "checkpoints").iterdir()
    for file in path.glob("memory.*"):
        file.unlink()
    values = config_files.load(run / "config.yaml")
    values["algorithm"]["capacity"] = 10**15
    config_files.dump(values, run / "config.yaml")
    for episodes in (1, 3, 6):
        arguments = ["--logdir", run, "--num_episodes", episodes]
        assert result(call(evaluate, *arguments))["episodes"] == episodes


def test_number_of_episodes_must_be_positive(call):
    code, output, errors = call(evaluate, "--logdir", "x", "--num_episodes", 0)
    assert (code, output) == (2, "")
    hint = "see `agents evaluate --help`."
    assert errors == f"error: --num_episodes must be positive, got 0; {hint}\n"


@pytest.mark.usefixtures("headless")
def test_arguments_are_those_of_the_step(fresh, call, tmp_path, monkeypatch):
    run = fresh(
        *("environment.id=environments_for_tests:Shown", "environment.num_agents=2"),
        "environment.kwargs={level: {type: linear, from: 0, to: 90, over: 90}}",
    )
    build = runs.policy

    def later(*arguments):
        return build(*arguments)[0], {"step": 50}

    monkeypatch.setattr(runs, "policy", later)
    arguments = "--logdir", run, "--num_episodes", 2
    # Three steps, whose rewards are the level.
    assert result(call(evaluate, *arguments))["mean_return"] == 150
    code, _, errors = call(visualize, *arguments, "--outdir", tmp_path / "out")
    assert (code, errors) == (0, "")
    episodes = json.loads((tmp_path / "out" / "episodes.json").read_text())
    assert [x["return"] for x in episodes] == [150, 150]


def test_summary_has_the_moments_of_the_episodes(fresh, call, monkeypatch):
    found = types.SimpleNamespace(scores=[1.0, 2.0, 9.0], lengths=[1, 1, 4])
    monkeypatch.setattr(evaluation, "play", lambda *_: found)
    values = result(call(evaluate, "--logdir", fresh(), "--num_episodes", 3))
    # Deviations from 4 are -3, -2 and 5: 38 / 3.
    wanted = {"episodes": 3, "mean_return": 4.0, "mean_length": 2.0, "step": 0}
    assert values == wanted | {"std_return": pytest.approx((38 / 3) ** 0.5)}


def test_environments_are_closed(fresh, call, monkeypatch):
    made, closed, build = [], [], runs.environments

    def remember(*args, **kwargs):
        batch = build(*args, **kwargs)
        close = batch.close
        batch.close = lambda: closed.append(close())
        made.append(batch)
        return batch

    monkeypatch.setattr(runs, "environments", remember)
    run = fresh("environment.backend=serial")
    result(call(evaluate, "--logdir", run, "--num_episodes", 1))
    assert len(made) == len(closed) == 1


def test_checkpoint_is_chosen_for_videos(trained, call, tmp_path):
    arguments = "--logdir", trained[0], "--outdir", tmp_path, "--checkpoint", "none"
    code, _, errors = call(visualize, *arguments)
    assert code == 2
    assert "none" in errors


def test_seeds_are_those_of_the_environments(trained, call):
    arguments = "--logdir", trained[0], "--num_episodes", 5
    means = {
        result(call(evaluate, *arguments, "--seed", x))["mean_return"] for x in range(3)
    }
    assert len(means) > 1


def test_episodes_are_apart_from_those_of_training(fresh, call, monkeypatch):
    seeds, reset = [], classic_control.CartPoleEnv.reset

    def remember(self, *, seed=None, options=None):
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    run = fresh("environment.backend=serial", "environment.num_agents=2")
    monkeypatch.setattr(classic_control.CartPoleEnv, "reset", remember)
    result(call(evaluate, "--logdir", run, "--num_episodes", 2))
    found = {seed for seed in seeds if seed is not None}
    assert len(found) == 2
    for phase in range(1000):
        assert not found & set(loop.phase_seeds(0, phase, 2).tolist())


def test_sampled_actions_have_the_seed(trained, call, monkeypatch):
    """The episodes begin alike, and go on as the actions say."""
    monkeypatch.setattr(loop, "phase_seeds", lambda seed, phase, rows: np.arange(rows))
    arguments = "--logdir", trained[0], "--num_episodes", 5, "--stochastic"
    means = {
        result(call(evaluate, *arguments, "--seed", x))["mean_return"] for x in range(3)
    }
    assert len(means) > 1
