"""Film episodes of a trained policy: `visualize --logdir RUN --outdir OUT`."""

import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from agents.environments import film, make
from agents.scripts import evaluate, experiment, runs
from agents.tools import files


@runs.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Write one video per episode and `episodes.json`, and say where they are."""
    parser = runs.episodes_parser("visualize", __doc__, num_episodes=3)
    parser.add_argument("--outdir", required=True, metavar="OUT", help="for the videos")
    args = parser.parse_args(argv)
    films = visualize(
        args.logdir,
        args.outdir,
        args.num_episodes,
        args.checkpoint,
        args.stochastic,
        args.seed,
    )
    for entry in films:
        print(f"return {entry['return']:>10,.1f}  {entry['length']} steps  ", end="")
        print(pathlib.Path(args.outdir) / entry["file"])
    print(f"Wrote {pathlib.Path(args.outdir) / 'episodes.json'}")
    return 0


def visualize(
    logdir: str,
    outdir: str,
    num_episodes: int = 3,
    checkpoint: str | None = None,
    stochastic: bool = False,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Film a trained policy, whose statistics stay as they are.

    Returns:
      `{"file", "return", "length"}` of every episode, as in `episodes.json`.
    """
    runs.start_tensorflow()
    config = runs.read_config(logdir)
    description = runs.describe(config)
    require_film(config, description)
    from agents.tools import in_graph_batch_env

    rows = min(num_episodes, os.cpu_count() or 1)
    agent, _ = runs.policy(logdir, config, description, rows, checkpoint)
    if stochastic:
        evaluate.require_stochastic(agent)
    runs.make_writable(outdir)
    film.clean(outdir)
    batch = start(config, outdir, rows, num_episodes)
    try:
        batch_env = in_graph_batch_env.InGraphBatchEnv(batch)
        evaluate.play(batch_env, agent, num_episodes, stochastic, seed)
        parts = [batch[row].films for row in range(rows)]
    finally:
        batch.close()
    films = [parts[n % rows][n // rows] for n in range(num_episodes)]
    film.require_whole(outdir, films)
    index = pathlib.Path(outdir) / "episodes.json"
    files.write(index, json.dumps(films, indent=2) + "\n")
    return films


def require_film(config: experiment.Config, description: make.Description) -> None:
    """Raise RunError unless single environments show the same as the batch.

    Films are made by environments of Gymnasium, whatever the backend of the run.
    """
    environment = config.environment
    backend = make.choose(environment.id, environment.backend)
    if backend in ("workers", "process", "serial"):
        return
    kwargs = environment.arguments if backend == "compiled" else {}
    try:
        single = make.describe(
            environment.id, environment.max_length, kwargs, "workers"
        )
        same = (
            single.observation_space == description.observation_space
            and single.action_space == description.action_space
        )
    except (make.EnvironmentNotFound, make.BackendError, make.ConstructorError):
        same = False
    if not same:
        raise runs.RunError(
            f"environment {environment.id!r} of backend {backend} cannot be filmed: "
            "Gymnasium has no single environment with the same spaces."
        )


def start(config: experiment.Config, outdir: str, rows: int, num_episodes: int) -> Any:
    """Environments of a config that write their episodes into a directory."""
    environment = config.environment
    constructor = make.constructor(
        environment.id,
        environment.max_length,
        {**environment.arguments, "render_mode": "rgb_array"},
    )
    try:
        return film.batch(
            *(constructor, outdir, rows, num_episodes),
            *(environment.timeout, environment.start_timeout),
        )
    except film.RenderError as error:
        raise runs.RunError(f"cannot film {environment.id!r}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
