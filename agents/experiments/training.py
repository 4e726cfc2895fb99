"""Training of a config: run directory, processes and reports."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import io
import json
import os
import pathlib
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from agents.environments import make
from agents.experiments import callbacks, curves, display, records, runs
from agents.experiments import config as experiment
from agents.tools import batch_env, calls, config_files, errors, files, sections

DRAWING = 10.0
"""Minimum time between two drawings of the curve, in seconds."""


def prepare(
    logdir: pathlib.Path, config: experiment.Config, command: str | None = None
) -> None:
    """Create a run directory by a command, or check that it has an equal config.

    Only `train.steps` may grow, and `train.stop_at` change: the past of a run does not
    depend on them, except for a last phase shorter than `train.eval_every`, which stays
    that short.

    Raises:
      RunError: if the run has another config.
    """
    path = logdir / "config.yaml"
    if not path.exists():
        logdir.mkdir(parents=True, exist_ok=True)
        written = io.StringIO()
        config_files.dump(config, written)  # If that fails, no file appears.
        files.write(logdir / "versions.txt", versions())
        text = json.dumps(origin(config, command), default=str)
        files.write(logdir / "origin.json", text + "\n")
        files.write(path, written.getvalue())
        return
    old = runs.read_config(logdir)
    anywhere = dataclasses.replace(config, devices=experiment.Devices())
    past, present = sections.to_dict(old), sections.to_dict(anywhere)
    changes = config_files.differences(past, present)
    steps = max(past["train"]["steps"], present["train"]["steps"])
    past["train"] |= {"steps": steps, "stop_at": config.train.stop_at}
    if forbidden := config_files.differences(past, present):
        raise runs.RunError(
            f"{logdir} was started with another config: {'; '.join(forbidden)}; "
            "use another --timestamp, or none, for a new run."
        )
    if changes:
        config_files.dump(sections.to_dict(config), path)


@contextlib.contextmanager
def removed_unless_begun(logdir: pathlib.Path) -> Iterator[None]:
    """Remove a locked directory that was empty if the block has a Mistake or Ctrl-C."""
    empty = all(path.name == files.LOCK for path in logdir.iterdir())
    try:
        yield
    except (errors.Mistake, KeyboardInterrupt):
        if empty:
            shutil.rmtree(logdir, ignore_errors=True)
        raise


def versions() -> str:
    """List the versions of packages that results depend on."""
    packages = "agents-in-graph", "tensorflow", "keras", "numpy", "gymnasium", "mujoco"
    lines = [f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for package in packages:
        try:
            lines.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{package} not installed")
    return "\n".join(lines) + "\n"


def origin(config: experiment.Config, command: str | None) -> dict[str, Any]:
    """Return how a run starts: command, date, machine, and the defaults of its config.

    Defaults are null if the algorithm does not have them.
    """
    import tensorflow as tf

    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GB"
    parts = [_processor(), f"{os.cpu_count()} cores", memory]
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        parts.append(details.get("device_name", gpu.name))
    return {
        "command": command,
        "date": datetime.datetime.now().isoformat(" ", "seconds"),
        "machine": ", ".join(parts),
        "defaults": config.defaults(),
    }


def own_metrics(algorithm: Any) -> list[str]:
    """Return the names of metrics that a class of the user adds to those of its base.

    These are all of a class that derives from `Algorithm` itself.
    """
    cls = type(algorithm)
    own = calls.classes_of_users(cls)
    base = next(x for x in cls.__mro__ if x not in own)
    names = getattr(cls, "METRICS", algorithm.metrics.names)
    return [name for name in names if name not in getattr(base, "METRICS", ())]


def _processor() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        if found := re.search(r"^model name\s*: (.+)$", text, re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()


class Training:
    """Run with its environments, algorithm, loop and output files."""

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

        With sizes, workers on Ray act, each for one of these numbers of rows; with
        shards, this number of processes stores the replay memory.
        """
        from agents.tools import checkpoint

        self._logdir, self._config, self._view = logdir, config, view
        self._callbacks = callbacks.Callbacks(config.train.callbacks)
        learning = config
        if num_shards:
            learning = config.without_memory(config.environment.num_agents)
        algorithm = runs.algorithm(learning, description)
        view.shown = self._callbacks.names, own_metrics(algorithm)
        checkpoints = checkpoint.Checkpoints(
            logdir / "checkpoints", config.train.keep_checkpoints
        )
        state = {"step": 0, "phase": 0, "metrics": 0, "timing": 0, "seconds": 0.0}
        if checkpoints.names():
            _require_same_division(checkpoints.state(), num_shards, len(sizes or ()))
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
            arguments = self._plan(), config.seed, checkpoints, self._offsets
            self._loop = loop_(self._batch_env, algorithm, *arguments, self._callbacks)
            if sizes:
                self._processes.callback(self._loop.close)
            stack.pop_all()
        self._loop.resume(state)
        self._unpublished: tuple[str, int, dict[str, float]] | None = None
        self._before = state["seconds"]
        self._start = self._drawn = time.perf_counter()

    def _open_files(self, state: dict) -> None:
        """Continue the report files from the offsets of the saved state."""
        from agents.experiments import writers

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
        """Show where environments run; warn if phases are shorter than episodes."""
        environment, train = self._config.environment, self._config.train
        backend = make.choose(environment)
        halves = ", in halves" if self._batch_env.parts == 2 else ""
        self._view.note(f"{environment.num_agents} environments by {backend}{halves}")
        length = min(train.eval_every, train.steps) // environment.num_agents
        longest = description.max_length
        if train.eval_episodes and longest is None:
            self._view.note(
                "Episodes have no limit of length, so an evaluation lasts until "
                f"{train.eval_episodes} have ended; environment.max_length sets one."
            )
        elif train.eval_episodes and length < longest:
            self._view.note(
                f"Episodes have up to {longest:,} steps, but each phase of training ends "
                f"after {length:,} and begins new ones; raise train.eval_every."
            )

    def _loop_class(
        self, description: Any, sizes: list[int] | None, num_shards: int
    ) -> Callable:
        """Return the loop of a local run, or of one with workers on Ray."""
        from agents.tools import loop

        if not sizes:
            return loop.Loop
        from agents.distributed import executor, phases

        self._view.note(f"{len(sizes)} workers on Ray")
        return functools.partial(
            *(executor.RayLoop, self._config, description, sizes),
            options=phases.Options(shards=num_shards),
        )

    def _plan(self) -> Any:
        """Return the phases of the run."""
        from agents.tools import loop

        train = self._config.train
        return loop.Plan(
            train.steps, train.eval_every, train.eval_episodes, train.stop_at
        )

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_) -> None:
        self.end_processes()
        self._files.close()

    def end_processes(self) -> None:
        """End all acting processes; training is impossible afterwards."""
        self._processes.close()

    @property
    def stopping(self) -> bool:
        """Return whether `run` ends with the phase; may be set while it runs."""
        return self._loop.stopping

    @stopping.setter
    def stopping(self, value: bool) -> None:
        self._loop.stopping = value

    def run(self) -> None:
        """Train to the end, or to the end of a phase if `stopping`.

        Raises:
          Failure: if numbers are not finite, or a file cannot be written.
        """
        import tensorflow as tf

        try:
            for report in self._loop.run():
                self._publish()
                self._view.progress(report)
                if report.finished:
                    self._write(report)
                    self._draw()
            self._publish()
        except (
            tf.errors.InvalidArgumentError,
            batch_env.EnvDataError,
            files.WriteError,
        ) as error:
            if isinstance(error, files.WriteError):
                self._view.stopped("The last checkpoint is as it was.")
            step, reason = self._loop.step, calls.graph_reason(error)
            raise errors.Failure(f"stopped at step {step:,}: {reason}") from error

        if self._callbacks.stopping:
            self._view.note("Stopped by a callback.")
        if self._loop.solved:
            score, goal = self._loop.best["score"], self._config.train.stop_at
            self._view.note(f"Solved: return {score:,.1f}, train.stop_at {goal:,g}.")

    def _draw(self) -> None:
        """Draw the curve so far, unless it was drawn recently."""
        if time.perf_counter() - self._drawn > DRAWING:
            with contextlib.suppress(records.PlotError):  # There are no scores yet.
                curves.plot_runs([self._logdir], self._logdir / "curve.png")
            self._drawn = time.perf_counter()

    def _write(self, report: Any) -> None:
        """Store the result of a phase."""
        row = {"phase": report.phase, "step": report.step, **report.metrics}
        self._metrics.write(row)
        rate = report.env_steps / report.seconds
        timing = {
            "phase": report.phase,
            "step": report.step,
            "seconds": round(self._seconds(), 3),
            "phase_seconds": round(report.seconds, 3),
            "env_steps_per_second": round(rate, 1),
            **report.timing,
        }
        if self._callbacks.stopping:
            timing["stopped"] = "by a callback"
        self._timing.write(timing)
        scalars = {k: v for k, v in report.metrics.items() if v is not None}
        scalars |= {"env_steps_per_second": rate, **report.timing}
        self._unpublished = report.phase, report.step, scalars

    def _publish(self) -> None:
        """Write the scalars of a phase whose checkpoint is complete.

        What these writers have got cannot be taken back when a phase is repeated.
        """
        for writer in self._scalars if self._unpublished else ():
            writer.write(*self._unpublished)
        self._unpublished = None

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def _offsets(self) -> dict:
        """Return the entries of a checkpoint about the files."""
        return {
            "metrics": self._metrics.offset(),
            "timing": self._timing.offset(),
            "seconds": self._seconds(),
        }


def _require_same_division(state: dict, num_shards: int, num_workers: int) -> None:
    """Raise RunError unless a replay memory is divided as in the state of a run."""
    shards, workers = state.get("shards", 0), state.get("workers", 0)
    if (shards, workers) == (num_shards, num_workers if num_shards else 0):
        return
    if not shards:
        raise runs.RunError(
            "the replay memory of this run is not in shards; leave out --num_shards."
        )
    raise runs.RunError(
        f"the replay memory of this run is in {shards} shards for {workers} workers; "
        f"go on with --executor ray --num_shards {shards} --num_workers {workers}."
    )
