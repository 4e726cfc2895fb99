"""Display of a run: a live line in terminals, plain lines elsewhere."""

import contextlib
import datetime
import logging
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agents.experiments import config as experiment

SHOWN = ("kl", "entropy", "explained_variance")
"""Metrics of algorithms that are shown."""


class Display:
    """Display of progress and results on the standard output.

        with Display(logdir, config, quiet) as view: view.progress(report)

    Attributes:
      shown: Lists of names of the user's metrics, which may grow.
    """

    def __init__(self, logdir: pathlib.Path, config: experiment.Config, quiet: bool):
        self._logdir, self._config, self._quiet = logdir, config, quiet
        self._live = sys.stdout.isatty() and not quiet
        self._bar = None
        self._last = -float("inf")  # Time of the last line; none yet.
        self._score = ""
        self.shown: Sequence[Sequence[str]] = ()
        self._begun: tuple[int, float] | None = None  # Step and time.
        self._log = _Notes(self._logged)

    def __enter__(self) -> "Display":
        environment = self._config.environment
        self.note(
            f"{self._config.name}: {self._config.algorithm.type} on {environment.id}, "
            f"{environment.num_agents} agents, seed {self._config.seed}\n"
            f"Writing to {self._logdir}"
        )
        if self._live:
            self._bar = _progress_bar(self._config.train.steps)
            self._bar.start()
        _LOGGER.setLevel(logging.INFO)
        _LOGGER.addHandler(self._log)
        _LOGGER.propagate = False  # Else others print it, too.
        return self

    def __exit__(self, *_) -> None:
        _LOGGER.removeHandler(self._log)
        _LOGGER.setLevel(logging.NOTSET)
        _LOGGER.propagate = True
        self.close()

    def close(self) -> None:
        """End the live line; later output is plain."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def note(self, text: str) -> None:
        """Print a text above the live line."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(
                text, highlight=False, markup=False, emoji=False, soft_wrap=True
            )
        else:
            print(text, flush=True)

    def _logged(self, record: logging.LogRecord) -> None:
        """Print log messages of the package; warnings even if quiet."""
        if self._quiet and record.levelno >= logging.WARNING:
            print(f"warning: {record.getMessage()}", file=sys.stderr)
        self.note(record.getMessage())

    def progress(self, report: Any) -> None:
        """Show the progress of the run, and the result of a finished phase."""
        rate = report.env_steps / max(report.seconds, 1e-9)
        if report.env_steps and not self._begun:  # The first steps are made.
            self._begun = report.step, time.perf_counter()
        if report.metrics.get("score") is not None:
            self._score = f"return {report.metrics['score']:,.1f}"
        if self._bar:
            self._bar.update(
                self._bar.task_ids[0],
                completed=report.step,
                phase=report.phase,
                rate=f"{rate:,.0f} steps/s" if report.env_steps else "starting",
                score=self._score,
            )
        if report.finished:
            self.note(self._line(report, rate))
        elif not self._bar and time.perf_counter() - self._last > 5:
            speed = f"{rate:>9,.0f} steps/s" if report.env_steps else "starting"
            total = f"{self._config.train.steps:,}"
            self.note(
                f"{report.phase:<8}  {report.step:>12,} / {total}  {speed}"
                f"{self._left(report.step)}"
            )
        else:
            return
        self._last = time.perf_counter()

    def _left(self, step: int) -> str:
        """Estimate the time of training left, from all steps but the first.

        The time of the first steps includes compilation.
        """
        if not self._begun:
            return ""
        begin, start = self._begun
        if not begin < step < self._config.train.steps:
            return ""
        pace = (time.perf_counter() - start) / (step - begin)
        left = (self._config.train.steps - step) * pace
        return f"  {datetime.timedelta(seconds=round(left))} left"

    def _line(self, report: Any, rate: float) -> str:
        """Return the line of a finished phase, as far as the terminal has room."""
        metrics = report.metrics
        score = metrics.get("score")
        text = "no episode finished" if score is None else f"return {score:>10,.1f}"
        found = {
            name: f"{name} {x:.3g}" for name, x in metrics.items() if x is not None
        }
        own = [name for names in self.shown for name in names]
        parts = [  # Metrics of the user first, and none twice.
            f"{report.phase:<8}  {report.step:>12,}  {rate:>9,.0f} steps/s  {text}",
            *(found.pop(name) for name in own if name in found),
            f"{metrics.get('episodes', 0)} episodes",
            *(found[name] for name in SHOWN if name in found),
        ]
        width = self._bar.console.width if self._bar else float("inf")
        while len(parts) > 1 and len("  ".join(parts)) > width:
            parts.pop()
        return "  ".join(parts)

    def resumed(self, step: int) -> None:
        """Announce that the run continues."""
        self.note(f"Resuming at step {step:,}.")

    def stopping(self) -> None:
        """Explain the effect of the first Ctrl-C."""
        self.note("Stopping when this phase is over; Ctrl-C again stops at once.")

    def stopped(self, what: str) -> None:
        """Explain how to resume."""
        timestamp = self._logdir.name.removesuffix(f"-{self._config.name}")
        command = f"--logdir {shlex.quote(str(self._logdir.parent))}"
        self.note(
            f"{what} To go on, repeat the command with {command} "
            f"--timestamp {shlex.quote(timestamp)}"
        )

    def finished(self, commands: list[str], *, drawn: bool) -> None:
        """Name the curve, if it is drawn, and suggest the next commands."""
        self.close()
        lines = "\n".join(f"  {command}" for command in commands)
        curve = f"; the curve is {self._logdir / 'curve.png'}" if drawn else ""
        self.note(f"Done{curve}. Next:\n{lines}")


_LOGGER = logging.getLogger("agents")


class _Notes(logging.Handler):
    """Log handler that shows messages of the package."""

    def __init__(self, show: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self.emit = show


def _progress_bar(total: int) -> Any:
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn("{task.fields[phase]:<8}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,} / {task.total:,}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TextColumn("{task.fields[score]}"),
        progress.TimeRemainingColumn(),
    )
    bar.add_task("run", total=total, phase="starting", rate="", score="")
    return bar


def silent(text: str) -> None:
    """Discard a text."""


@contextlib.contextmanager
def counting(
    runner: Any, total: int, unit: str, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of an `agents.Runner`, if the output is a terminal.

    The yielded function takes the number of finished units; it may be called after
    every step.
    """
    if not shown or not sys.stdout.isatty():
        yield lambda _: None
        return
    from rich import progress

    columns = ["{task.completed:,} / {task.total:,}", unit, "{task.fields[text]}"]
    columns = [progress.TextColumn(x) for x in columns]
    bar = progress.Progress(progress.BarColumn(), *columns)
    task = bar.add_task("", total=total, text="")
    last, last_steps = time.perf_counter(), runner.steps

    def show(done: int) -> None:
        nonlocal last, last_steps
        now = time.perf_counter()
        if now - last < 0.2 and done < total:
            return
        rate = (runner.steps - last_steps) / (now - last)
        last, last_steps = now, runner.steps
        text = f"{rate:,.0f} steps/s"
        if runner.episodes:
            text += f"  mean return {runner.mean_return:,.1f}"
        bar.update(task, completed=done, text=text)

    with bar:
        yield show
