"""Episodes of trained policies: returns and videos."""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.environments import videos
from agents.experiments import display, filming, runs
from agents.tools import files

FORMATS = videos.FORMATS
EVALUATION = 2**31 - 1
"""Phase number of evaluation for seeds, apart from those of training."""


def evaluate(
    logdir: str,
    num_episodes: int = 20,
    checkpoint: str | None = None,
    stochastic: bool = False,
    seed: int = 0,
    say: Callable[[str], Any] = display.silent,
) -> dict[str, Any]:
    """Evaluate a trained policy, without changing statistics; return a summary.

    `say` is called with a text at every stage.
    """
    say("Loading the policy")
    config = runs.read_config(logdir)
    description = runs.describe(config)
    num_agents = min(config.environment.num_agents, num_episodes)
    agent, state = runs.policy(logdir, config, description, num_agents, checkpoint)
    if stochastic:
        require_stochastic(agent)
    batch_env = runs.environments(config, num_agents=num_agents)
    try:
        step = state["step"]
        episodes = play(batch_env, agent, num_episodes, stochastic, seed, say, step)
    finally:
        batch_env.close()
    return {
        "episodes": len(episodes.scores),
        "mean_return": float(np.mean(episodes.scores)),
        "std_return": float(np.std(episodes.scores)),
        "mean_length": float(np.mean(episodes.lengths)),
        "step": state["step"],
    }


def play(
    batch_env: Any,
    agent: Any,
    num_episodes: int,
    stochastic: bool,
    seed: int,
    say: Callable[[str], Any] = display.silent,
    step: int = 0,
) -> Any:
    """Run the first episodes of every row to their end; return `loop.FirstEpisodes`.

    Arguments of environments have the values of this step of training. Variables of
    checkpoints, including random numbers, do not change.
    """
    import tensorflow as tf

    from agents.tools import loop, sampling

    size = len(batch_env)
    episodes = loop.FirstEpisodes(size, num_episodes)
    seeds = loop.phase_seeds(seed, EVALUATION, size)
    if stochastic:
        generator = tf.random.Generator.from_seed(seed, alg="philox")
        agent = sampling.Sampling(agent, size, generator)
    steps = loop.Steps(batch_env, agent, seeds, False, step)
    while not episodes.complete:
        done, count = len(episodes.scores), steps.env_steps
        say(f"{done} of {num_episodes} episodes, {count:,} steps")
        episodes.add(steps.run(loop.EVALUATION_STEPS))
    return episodes


def require_stochastic(agent: Any) -> None:
    """Raise RunError unless the agent's policy can sample actions."""
    try:
        agent.require_stochastic()
    except ValueError as error:
        raise runs.RunError(f"--stochastic: {error}") from error


def visualize(
    logdir: str,
    outdir: str,
    num_episodes: int = 3,
    checkpoint: str | None = None,
    stochastic: bool = False,
    seed: int = 0,
    say: Callable[[str], Any] = display.silent,
    format: str = "mp4",
    overlay: bool = False,
    grid: bool = False,
) -> list[dict[str, Any]]:
    """Film a trained policy, without changing statistics; see `evaluate`.

    Videos have one of `FORMATS`, and replace those of an earlier call. An overlay shows
    step and return on every frame, and a grid all episodes side by side in one video.

    Returns:
      `{"file", "return", "length"}` of every episode, as in `episodes.json`.
    """
    rows = min(num_episodes, os.cpu_count() or 1)
    source, agent, step = _drawable(logdir, rows, checkpoint, stochastic, say)
    runs.make_writable(outdir)
    style = videos.Style(format, overlay, grid)
    batch_env, reels = source.start(outdir, rows, num_episodes, style)
    with contextlib.closing(batch_env):
        videos.clean(outdir)
        play(batch_env, agent, num_episodes, stochastic, seed, say, step)
        parts = [reels[row].films for row in range(rows)]
    films = [parts[n % rows][n // rows] for n in range(num_episodes)]
    videos.require_whole(outdir, films)
    if grid:
        say("Joining the videos")
        films = videos.join(outdir, films, format)
        videos.require_whole(outdir, films)
    index = pathlib.Path(outdir) / videos.INDEX
    files.write(index, json.dumps(films, indent=2) + "\n")
    return films


def watch(
    logdir: str,
    num_episodes: int = 3,
    checkpoint: str | None = None,
    stochastic: bool = False,
    seed: int = 0,
    say: Callable[[str], Any] = display.silent,
) -> list[dict[str, Any]]:
    """Show a trained policy in a window; return `{"return", "length"}` of episodes."""
    source, agent, step = _drawable(logdir, 1, checkpoint, stochastic, say)
    with contextlib.closing(source.window()) as batch_env:
        found = play(batch_env, agent, num_episodes, stochastic, seed, say, step)
    pairs = zip(found.scores, found.lengths, strict=True)
    return [{"return": score, "length": length} for score, length in pairs]


def _drawable(
    logdir: str,
    rows: int,
    checkpoint: str | None,
    stochastic: bool,
    say: Callable[[str], Any],
) -> tuple[Any, Any, int]:
    """Load a run whose episodes can be drawn; return source, policy and step."""
    say("Loading the policy")
    config = runs.read_config(logdir)
    description = runs.describe(config)
    source = filming.find(config.environment, description)
    agent, state = runs.policy(logdir, config, description, rows, checkpoint)
    if stochastic:
        require_stochastic(agent)
    return source, agent, state["step"]
