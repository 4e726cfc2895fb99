"""Train a config, or resume a run: `train --config NAME`."""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from agents.distributed import cluster
from agents.environments import make
from agents.scripts import configs, display, experiment, runs
from agents.tools import batch_env, bounds, files
from agents.tools import config as config_


@runs.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, train, and say what to type next."""
    args = parse(argv)
    runs.start_tensorflow(args.debug)
    config = configs.load(args.config, args.set, args.seed)
    if not args.debug:
        runs.use_threads(config)
    else:
        halves = runs.in_halves(config.environment)  # Or the numbers would differ.
        changes = [f"environment.action_lag={str(halves).lower()}"]
        changes += ["environment.backend=serial"]
        config = experiment.resolve(config_.override(config_.to_dict(config), changes))
    runs.require_devices(config)
    timestamp = args.timestamp or datetime.datetime.now().strftime("%Y%m%dT%H%M%S")
    config_.require_name(timestamp, "--timestamp")
    logdir = pathlib.Path(args.logdir) / f"{timestamp}-{config.name}"
    description = runs.describe(config)
    with contextlib.ExitStack() as stack:
        sizes = None
        if args.executor == "ray":
            num_agents = config.environment.num_agents
            sizes = stack.enter_context(
                cluster.connected(args.ray_address, args.num_workers, num_agents)
            )
        stack.enter_context(runs.alone(logdir, "--timestamp"))
        prepare(logdir, config)
        view = stack.enter_context(display.Display(logdir, config, args.quiet))
        return Training(logdir, config, description, view, sizes, args.num_shards).run()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of the script."""
    parser = runs.Parser("train", description=__doc__)
    parser.add_argument(
        "--config", required=True, metavar="NAME|FILE.yaml", help="what to train"
    )
    parser.add_argument(
        "--logdir", default="logdir", metavar="DIR", help="parent of run directories"
    )
    parser.add_argument(
        "--timestamp",
        metavar="T",
        help="prefix of the run directory (default: now); again to resume the run",
    )
    parser.add_argument("--seed", type=runs.SEED, metavar="N")
    configs.add_overrides(parser)
    parser.add_argument(
        "--debug", action="store_true", help="eager, in one process and thread"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="who acts: this process, or workers on Ray",
    )
    parser.add_argument(
        "--ray_address",
        metavar="HOST:PORT|auto",
        help="cluster of the workers (default: Ray is started here)",
    )
    parser.add_argument(
        "--num_workers",
        type=runs.COUNT,
        metavar="N",
        help="workers on Ray (default: one per free CPU)",
    )
    parser.add_argument(
        "--num_shards",
        type=runs.integer(bounds.WHOLE),
        default=0,
        metavar="N",
        help="processes on Ray that hold a replay memory (default: that of the learner)",
    )
    args = parser.parse_args(argv)
    distributed = args.ray_address or args.num_workers or args.num_shards
    if args.executor == "local" and distributed:
        parser.error(
            "--ray_address, --num_workers and --num_shards need --executor ray"
        )
    return args


def prepare(logdir: pathlib.Path, config: experiment.Config) -> None:
    """Fill a new run directory, or make sure that it holds the same config.

    Only `train.steps` may grow: what a run has done so far does not depend on it, but
    for a last phase of less than `train.eval_every`, which stays as short.
    """
    path = logdir / "config.yaml"
    if not path.exists():
        logdir.mkdir(parents=True, exist_ok=True)
        files.write(logdir / "versions.txt", versions())
        config_.dump(config_.to_dict(config), path)
        return
    old = runs.read_config(logdir)
    anywhere = dataclasses.replace(config, devices=experiment.Devices())
    changes = config_.differences(config_.to_dict(old), config_.to_dict(anywhere))
    longer = config.train.steps > old.train.steps and len(changes) == 1
    if changes and not longer:
        raise runs.RunError(
            f"{logdir} was started with another config: {'; '.join(changes)}; "
            "use another --timestamp, or change its config.yaml."
        )
    if longer:
        config_.dump(config_.to_dict(config), path)


def versions() -> str:
    """Versions of what a result depends on."""
    packages = ("agents", "tensorflow", "keras", "numpy", "gymnasium", "mujoco")
    lines = [f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for package in packages:
        try:
            lines.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{package} not installed")
    return "\n".join(lines) + "\n"


class Training:
    """One run: its environments, algorithm, loop and the files that they fill."""

    def __init__(
        self,
        logdir: pathlib.Path,
        config: experiment.Config,
        description: Any,
        view: display.Display,
        sizes: list[int] | None = None,
        num_shards: int = 0,
    ) -> None:
        """Restore the newest checkpoint, if any, and start the environments.

        With sizes, workers on Ray act, each for one of these numbers of rows, and with
        shards, as many processes there hold the replay memory.
        """
        from agents.tools import checkpoint

        self._logdir, self._config, self._view = logdir, config, view
        learning = config
        if num_shards:
            learning = config.without_memory(config.environment.num_agents)
        algorithm = runs.algorithm(learning, description)
        checkpoints = checkpoint.Checkpoints(
            logdir / "checkpoints", config.train.keep_checkpoints
        )
        state = {"step": 0, "phase": 0, "metrics": 0, "timing": 0, "seconds": 0.0}
        if checkpoints.names():
            keys, state = state.keys(), runs.restore(logdir, algorithm)
            if keys - state.keys():
                raise runs.RunError(f"{checkpoints.directory} is not that of a run.")
            view.resumed(state["step"])
        with contextlib.ExitStack() as stack:
            self._files = stack.enter_context(contextlib.ExitStack())
            self._processes = stack.enter_context(contextlib.ExitStack())
            self._open_files(state)
            self._batch_env = runs.environments(config)
            self._processes.callback(self._batch_env.close)
            self._say_where(description)
            loop_ = self._loop_class(description, sizes, num_shards)
            arguments = self._schedule(), config.seed, checkpoints, self._offsets
            self._loop = loop_(self._batch_env, algorithm, *arguments)
            if sizes:
                self._processes.callback(self._loop.close)
            stack.pop_all()
        self._loop.step, self._loop.phase = state["step"], state["phase"]
        self._before = state["seconds"]
        self._start = time.perf_counter()

    def _open_files(self, state: dict) -> None:
        """Go on with the reports behind those that the saved state counts on."""
        from agents.tools import writers

        def close_later(writer):
            self._files.callback(writer.close)
            return writer

        self._metrics, self._timing = (
            close_later(writers.JsonLines(self._logdir / f"{x}.jsonl", state[x]))
            for x in ("metrics", "timing")
        )
        self._scalars = [close_later(writers.TensorBoard(self._logdir))]
        if project := self._config.train.wandb:
            wandb = writers.WeightsAndBiases(self._logdir, project)
            self._scalars.append(close_later(wandb))

    def _say_where(self, description: Any) -> None:
        """Show where environments run, and whether episodes are seen to their ends."""
        environment, train = self._config.environment, self._config.train
        backend = make.choose(environment.id, environment.backend)
        halves = ", in halves" if self._batch_env.parts == 2 else ""
        self._view.note(f"{environment.num_agents} environments by {backend}{halves}")
        length = min(train.eval_every, train.steps) // environment.num_agents
        if train.eval_episodes and length < description.max_length:
            self._view.note(
                f"Every phase of training begins new episodes, of which {length} steps "
                f"are seen, not {description.max_length}: raise train.eval_every."
            )

    def _loop_class(
        self, description: Any, sizes: list[int] | None, num_shards: int
    ) -> Callable:
        """Loop of a run here, or of one with workers on Ray."""
        from agents.tools import loop

        if not sizes:
            return loop.Loop
        from agents.distributed import executor, phase

        self._view.note(f"{len(sizes)} workers on Ray")
        return functools.partial(
            *(executor.Loop, self._config, description, sizes),
            options=phase.Options(shards=num_shards),
        )

    def _schedule(self) -> Any:
        """Phases of the run."""
        from agents.tools import loop

        train = self._config.train
        return loop.Schedule(train.steps, train.eval_every, train.eval_episodes)

    def run(self) -> int:
        """Train to the end, or to the end of a phase after Ctrl-C; the exit code."""
        import tensorflow as tf

        previous = signal.signal(signal.SIGINT, self._interrupt)
        try:
            for report in self._loop.run():
                self._view.progress(report)
                if report.finished:
                    self._write(report)
        except (
            tf.errors.InvalidArgumentError,
            batch_env.EnvDataError,
            files.WriteError,
        ) as error:
            step, reason = self._loop.step, _reason(error)
            print(f"error: stopped at step {step:,}: {reason}", file=sys.stderr)
            if isinstance(error, files.WriteError):
                self._view.stopped("The last checkpoint is as it was.")
            return 1
        finally:
            signal.signal(signal.SIGINT, previous)
            self._processes.close()
            self._files.close()
        if self._loop.stopping:
            self._view.stopped("Saved.")
            return 130
        self._finish()
        return 0

    def _interrupt(self, *_) -> None:
        """First Ctrl-C: stop when the phase is over and saved; second: at once.

        At once means here: raised while TensorFlow traces, an exception may come out
        as another or not at all.
        """
        if self._loop.stopping:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # The third: without cleaning.
            self._view.stopped("Stopped at once.")
            self._view.close()
            self._processes.close()
            os._exit(130)
        self._loop.stopping = True
        self._view.stopping()

    def _write(self, report: Any) -> None:
        """Store the result of a phase."""
        row = {"phase": report.phase, "step": report.step, **report.metrics}
        self._metrics.write(row)
        rate = report.env_steps / report.seconds
        timing = {
            "phase": report.phase,
            "step": report.step,
            "seconds": round(self._seconds(), 3),
            "env_steps_per_second": round(rate, 1),
            **report.timing,
        }
        self._timing.write(timing)
        scalars = {k: v for k, v in report.metrics.items() if v is not None}
        for writer in self._scalars:
            speeds = {"env_steps_per_second": rate, **report.timing}
            writer.write(report.phase, report.step, {**scalars, **speeds})

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def _offsets(self) -> dict:
        """What a checkpoint remembers about the files."""
        return {
            "metrics": self._metrics.offset(),
            "timing": self._timing.offset(),
            "seconds": self._seconds(),
        }

    def _finish(self) -> None:
        """Draw the curve and say what to type next."""
        from agents.scripts import plot

        try:
            plot.plot_runs([self._logdir], self._logdir / "curve.png")
        except plot.PlotError as error:
            self._view.note(f"No curve: {error}")
        quoted = shlex.quote(str(self._logdir))
        parent = shlex.quote(str(self._logdir.parent))
        self._view.finished(
            [
                f"{program('agents')} evaluate --logdir {quoted}",
                f"{program('agents')} visualize --logdir {quoted} "
                f"--outdir {quoted}/videos",
                f"{program('tensorboard')} --logdir {parent}",
            ]
        )


def _reason(error: Exception) -> str:
    """One line of an error, without what TensorFlow puts around it."""
    line = str(error).partition("\n\t [[")[0].strip().split("\n")[-1]
    return re.sub(r"\{\{.*?\}\} *| *\[Op:.*", "", line)


def program(name: str) -> str:
    """How to call a program of this installation from the working directory."""
    if shutil.which(name):
        return name
    folder = pathlib.Path(os.path.relpath(sys.prefix)) / "bin"
    return shlex.quote(str(folder / name))


if __name__ == "__main__":
    sys.exit(main())
