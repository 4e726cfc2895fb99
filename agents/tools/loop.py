"""Phases of training and evaluation, with reports and checkpoints."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from agents.tools import algorithm as algorithm_
from agents.tools import checkpoint, errors, simulation
from agents.tools import steps as steps_


@dataclasses.dataclass(frozen=True)
class Plan:
    """Lengths of a run and its phases, in environment steps of training."""

    steps: int
    eval_every: int
    eval_episodes: int
    stop_at: float | None = None
    """Mean return of an evaluation that ends the run."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Result of one phase, or its progress (`finished` false, no metrics)."""

    phase: str
    step: int
    """Environment steps trained so far."""
    metrics: dict[str, float | int | None]
    seconds: float
    """Duration of the phase so far."""
    env_steps: int
    """Environment steps of this phase, in training or evaluation."""
    finished: bool = True
    timing: dict[str, float] = dataclasses.field(default_factory=dict)
    """Further values that depend on the clock."""


class MetricError(errors.Mistake):
    """Metric of an algorithm with a name that it cannot have."""


class Loop:
    """Alternation of training and evaluation phases until all steps are done.

    Every phase begins by resetting all environments with seeds derived from (seed,
    number of the phase, row), and checkpoints are written at the ends of phases. So a
    run that continues from a checkpoint is identical to an uninterrupted one.

        for report in Loop(...).run(): ...

    Attributes:
      step: Environment steps of training so far.
      phase: Number of the current phase.
      stopping: Whether to stop after it; set by the caller.
      best: Best mean return of evaluations, or of training phases if there are none,
        with the name of its checkpoint: `{"score", "checkpoint"}`; None at first.
    """

    def __init__(
        self,
        batch_env: steps_.Environments,
        algorithm: algorithm_.Algorithm,
        plan: Plan,
        seed: int,
        checkpoints: checkpoint.Checkpoints | None = None,
        state: Callable[[], dict] = dict,
        callbacks: Any = None,
    ) -> None:
        """Prepare a run.

        Args:
          batch_env: Environments of training and evaluation.
          algorithm: Algorithm that acts in all of their rows.
          plan: Lengths of the phases.
          seed: Seed of the environments.
          checkpoints: Directory to save to at the ends of phases.
          state: Function that returns further JSON values to save.
          callbacks: Followers of the run; see `experiments.callbacks.Callbacks`.

        Raises:
          MetricError: if a metric has a name that reports use otherwise.
        """
        reserved = {"phase", "step", *summary([0.0], [1])}
        if taken := reserved.intersection(algorithm.metrics.names):
            raise MetricError(
                f"{type(algorithm).__name__} cannot have a metric {min(taken)!r}, as "
                "reports use this name otherwise; choose another."
            )
        self._batch_env = batch_env
        self._algorithm = algorithm
        self.plan = plan
        self._seed = seed
        self._checkpoints = checkpoints
        self._state = state
        self._callbacks = callbacks
        self._told: dict[str, float] = {}  # Metrics of the last event of an update.
        self.step, self.phase = 0, 0
        self.stopping = False
        self.best: dict[str, Any] | None = None

    def restore(self) -> dict:
        """Continue from the newest checkpoint; return the saved state."""
        state = self._checkpoints.restore(self._algorithm.persistent())
        self.resume(state)
        return state

    def resume(self, state: dict) -> None:
        """Continue from the state of a checkpoint, whose variables are restored."""
        self.step, self.phase = state["step"], state["phase"]
        self.best = state.get("best")
        if self.best:
            self._checkpoints.mark(self.best["checkpoint"])

    @property
    def _dismissed(self) -> bool:
        """Return whether a callback has asked to stop."""
        return bool(self._callbacks and self._callbacks.stopping)

    @property
    def solved(self) -> bool:
        """Return whether an evaluation has reached the return at which to stop."""
        if self.plan.stop_at is None or self.best is None:
            return False
        return self.best["score"] >= self.plan.stop_at

    def run(self) -> Iterator[Report]:
        """Yield progress and results; the last report of a phase is `finished`.

        The checkpoint of a phase is written when the next report is requested, so that
        the consumer of the reports can store them first.
        """
        while not (self.stopping or self.solved or self._dismissed):
            training = self.plan.eval_episodes == 0 or self.phase % 2 == 0
            if training and self.step >= self.plan.steps:
                break
            for report in self._train() if training else self._evaluate():
                yield report
            self.phase += 1
            if not training or self.plan.eval_episodes == 0:
                self._judge(report.metrics["score"])
            if self._checkpoints:
                self.save(self._checkpoints)

    def save(self, checkpoints: checkpoint.Checkpoints) -> None:
        """Write a checkpoint, of which the best is known only if it is in there, too."""
        here = *checkpoints.names(), checkpoint.name_of(self.step)
        best = self.best if self.best and self.best["checkpoint"] in here else None
        persistent, state = self._algorithm.persistent(), {**self.state(), "best": best}
        checkpoints.save(self.step, persistent, state, best and best["checkpoint"])

    def state(self) -> dict[str, Any]:
        """Return the JSON values of a checkpoint, except for the best one."""
        return {"step": self.step, "phase": self.phase, **self._state()}

    def _judge(self, score: float | None) -> None:
        """Remember the score of the coming checkpoint if it is the best so far."""
        if score is not None and (self.best is None or score > self.best["score"]):
            self.best = {"score": score, "checkpoint": checkpoint.name_of(self.step)}

    def _train(self) -> Iterator[Report]:
        """Run one phase of training."""
        size, multiple = len(self._batch_env), self._algorithm.batch_steps
        remaining = min(self.plan.eval_every, self.plan.steps - self.step)
        total = -(-remaining // (size * multiple)) * multiple * size
        steps = self.training()
        start, scores, lengths = self.step, [], []
        yield steps.report("train", self.step)
        while steps.env_steps < total:
            try:
                result = steps.run(-((steps.env_steps - total) // size))
            finally:
                self.step = start + steps.env_steps  # Also after an error.
            scores.extend(result["score"][result["done"]])
            lengths.extend(result["length"][result["done"]])
            if self._callbacks:
                self._tell(result)
            if steps.env_steps < total:
                yield steps.report("train", self.step)
        metrics = summary(scores, lengths) | self._algorithm.metrics.result()
        metrics |= steps.metrics()
        self._algorithm.metrics.reset()
        if self._callbacks:
            metrics |= self._callbacks.result(metrics)
        yield steps.report("train", self.step, metrics)

    def _tell(self, result: dict[str, np.ndarray]) -> None:
        """Tell callbacks which episodes have ended, and whether there were updates."""
        done = result["done"]
        ended = result["score"][done].tolist(), result["length"][done].tolist()
        for score, length in zip(*ended, strict=True):
            values = {"score": score, "length": length}
            self._callbacks.call("episode", self.step, values)
        metrics = self._algorithm.metrics.result()
        if metrics and metrics != self._told:
            self._callbacks.call("update", self.step, metrics)
        self._told = metrics

    def _evaluate(self) -> Iterator[Report]:
        """Run one phase of evaluation."""
        steps = self._steps(training=False)
        episodes = FirstEpisodes(len(self._batch_env), self.plan.eval_episodes)
        while not episodes.complete:
            episodes.add(steps.run(EVALUATION_STEPS))
            if not episodes.complete:
                yield steps.report("evaluate", self.step)
        metrics = summary(episodes.scores, episodes.lengths)
        if self._callbacks:
            self._callbacks.call("evaluation", self.step, metrics)
            metrics |= self._callbacks.result(metrics)
        yield steps.report("evaluate", self.step, metrics)

    def training(self) -> "Progress":
        """Create the progress of a training phase; subclasses run it elsewhere."""
        return self._steps(training=True)

    def _steps(self, training: bool) -> "Steps":
        """Create the progress of a local phase."""
        batch_env, algorithm = self._batch_env, self._algorithm
        return Steps(batch_env, algorithm, self.seeds(), training, self.step)

    def seeds(self) -> np.ndarray:
        """Return the seeds of all rows in this phase, `[N]`."""
        return phase_seeds(self._seed, self.phase, len(self._batch_env))


EVALUATION_STEPS = 100
"""Batch steps of an evaluation between tests for completion."""


class Progress:
    """Base of running phases.

    Attributes:
      env_steps: Environment steps begun so far.
    """

    env_steps = 0

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Continue for at most `limit` steps of all rows together.

        Returns:
          `done`, `score` and `length` as in `simulate`, in arrays of equal shape.
        """
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Return further metrics of a finished phase, independent of the clock."""
        return {}

    def timing(self, seconds: float) -> dict[str, float]:
        """Return further values for a duration in seconds."""
        return {}

    def report(self, phase: str, step: int, metrics: dict | None = None) -> Report:
        """Report the progress or, given metrics, the end of the phase."""
        seconds = time.perf_counter() - self._start
        finished, steps = metrics is not None, self.env_steps
        timing = self.timing(seconds)
        return Report(phase, step, metrics or {}, seconds, steps, finished, timing)


class Steps(Progress):
    """Simulation from fresh episodes, in calls of about half a second each."""

    def __init__(
        self,
        batch_env: steps_.Environments,
        algorithm: algorithm_.Algorithm,
        seeds: np.ndarray,
        training: bool,
        elapsed: int,
    ) -> None:
        """Abandon all episodes; the next ones begin with these seeds `[N]`.

        `elapsed` is the number of environment steps of training so far.
        """
        super().__init__()
        batch_env.discontinue(seeds)
        batch_env.elapsed = elapsed
        self._batch_env, self._algorithm = batch_env, algorithm
        self._training = training
        self._size = 16
        self._steps_before = batch_env.steps

    @property
    def env_steps(self) -> int:
        """Environment steps begun so far."""
        return self._batch_env.steps - self._steps_before

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Simulate at most `limit` steps; return arrays `[steps, N]` of `simulate`."""
        start, steps = time.perf_counter(), min(limit, self._size)
        result = simulation.simulate(
            self._batch_env, self._algorithm, steps, self._training
        )
        duration = time.perf_counter() - start
        if duration < 0.25:
            self._size *= 2
        elif duration > 1.0:
            self._size = max(self._size // 2, 1)
        return {name: value.numpy() for name, value in result.items()}


class FirstEpisodes:
    """Collector of each row's first episodes, so that short ones are not favored.

    Attributes:
      scores, lengths: Scores and lengths of the counted episodes.
    """

    def __init__(self, rows: int, episodes: int) -> None:
        """Distribute a number of episodes over rows."""
        counts = np.full(rows, episodes // rows)
        counts[: episodes % rows] += 1
        self._missing = counts
        self.scores: list[float] = []
        self.lengths: list[int] = []

    @property
    def complete(self) -> bool:
        """Return whether all episodes have finished."""
        return not self._missing.any()

    def add(self, result: dict[str, np.ndarray]) -> None:
        """Count finished episodes in `[steps, N]` results of `simulate`."""
        for step, row in np.argwhere(result["done"]):
            if self._missing[row]:
                self._missing[row] -= 1
                self.scores.append(float(result["score"][step, row]))
                self.lengths.append(int(result["length"][step, row]))


def summary(scores: list, lengths: list) -> dict[str, float | int | None]:
    """Return means and quartiles of episodes; means are None without episodes."""
    if not scores:
        return {"score": None, "length": None, "episodes": 0}
    lower, upper = np.percentile(scores, [25, 75]).tolist()
    return {
        "score": float(np.mean(scores, dtype=np.float64)),
        "length": float(np.mean(lengths, dtype=np.float64)),
        "episodes": len(scores),
        "lower_quartile": lower,
        "upper_quartile": upper,
    }


def phase_seeds(seed: int, phase: int, rows: int) -> np.ndarray:
    """Return seeds of the environments in a phase, int64 `[rows]`, below 2**31."""
    sequence = np.random.SeedSequence([seed, phase])
    return sequence.generate_state(rows).astype(np.int64) >> 1
