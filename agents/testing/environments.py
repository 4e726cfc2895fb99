"""Conformance checks that apply to every batch of environments."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from agents.testing import conformance
from agents.tools import (
    actions,
    checks,
    errors,
    processes,
    spaces,
    transitions,
)

SHAPES = "Results have the shapes and dtypes of the spaces"
RAISES = "Steps and resets succeed"
REFUSED = "What is not allowed is refused"
UNTOUCHED = "What is refused changes nothing"
OWN = "Arrays that were returned never change"
REPEATED = "Same seeds and actions give the same episodes"
RANDOM = "Other seeds give other episodes"
REFERENCE = "Episodes are those of the environment alone"
RESTARTED = "start and finish with restart are step and reset"
TRUE_LAST = "The observation of a done row is the last of its episode"
ORDER = "reset returns observations in the order of the indices"
ROWS = "reset changes only the rows it names"
ENDS = "Episodes end"
CLOSE = "close may be repeated"


def check_batch_env(
    factory: Callable[[], Any],
    reference: Callable[[], gymnasium.Env] | None = None,
    seeded: bool = True,
    steps: int = 100,
) -> None:
    """Check that a batch of environments meets the contract of `batch_env.Backend`.

    The actions are random and ignore masks. Three batches exist at the same time.

    Args:
      factory: Creates a batch of at least three rows, whose episodes last fewer than
        `steps` steps with random actions.
      reference: Creates a single environment, which rows must equal exactly.
      seeded: Whether episodes begin differently and depend only on their seed and the
        actions. If not, they may also depend on the batch's past.
      steps: Length of the comparisons, in batch steps.

    Raises:
      ConformanceError: one line with the broken rule, the place, and expected and
        actual values.
    """
    with contextlib.ExitStack() as stack:
        batches = [stack.enter_context(_created(factory)) for _ in range(3)]
        first, second, _ = batches
        seeds = _seeds(len(first))
        record = _check_alone(first, seeds, steps)
        if reference is not None:
            alone = _play_alone(reference, first, seeds, steps)
            _require_same_record(REFERENCE, alone, record)
        _require_same_record(REPEATED, record, _Run(second).play(seeds, steps))
        _check_side_by_side(batches, record, seeds, steps)
        if seeded:
            again, other = (_Run(first).play(x, steps) for x in (seeds, seeds // 2 + 7))
            _require_same_record(REPEATED, record, again)
            differ = not conformance.same(record, other)
            conformance.require(differ, RANDOM, "all rows", "a difference", "none")


@contextlib.contextmanager
def _created(factory: Callable[[], Any]) -> Iterator[Any]:
    """Yield a batch; close it twice at the end."""
    batch = factory()
    try:
        yield batch
    finally:
        batch.close()
    try:
        batch.close()
    except Exception as error:
        line = errors.reason(error)
        conformance.fail(CLOSE, "second close", "no error", line)


def _seeds(size: int) -> np.ndarray:
    """Return distinct seeds, including the largest and the smallest."""
    seeds = np.arange(size) + 3
    seeds[1], seeds[-1] = 2**32 - 1, 0
    return seeds


@contextlib.contextmanager
def _data(where: str) -> Iterator[None]:
    """Raise ConformanceError for data that the batch refuses, and failures."""
    try:
        yield
    except checks.EnvDataError as error:
        conformance.fail(SHAPES, where, "data of the spaces", error)
    except processes.EnvError as error:
        conformance.fail(RAISES, where, "no error", errors.reason(error))


class _Run:
    """Run of a batch with actions that are equal for all runs of these spaces."""

    def __init__(self, batch: Any, seed: int = 0) -> None:
        self.batch, self.kept = batch, []
        self._seed = seed

    def play(self, seeds: np.ndarray, steps: int) -> list[Any]:
        """Reset and step; return all results."""
        first = self.reset(None, seeds)
        return [first, *(self.step() for _ in range(steps))]

    def actions(self) -> Any:
        """Return the next actions, a structure of arrays `[N, ...]`."""
        self._seed += 1
        return conformance.samples(self.batch.action_space, self._seed, len(self.batch))

    def reset(self, rows: Any = None, seeds: Any = None) -> Any:
        """Reset rows; return first observations `[K, ...]`."""
        with _data("reset"):
            observation = self.batch.reset(rows, seeds)
        size = len(self.batch) if rows is None else len(rows)
        space = self.batch.observation_space
        conformance.require_fits(SHAPES, "reset", space, size, observation)
        return self._keep(observation)

    def step(self) -> dict[str, Any]:
        """Step, reset done rows; return results and first observations."""
        with _data("step"):
            result = self.batch.step(self.actions())
        conformance.require(
            isinstance(result, tuple) and len(result) == 5 and type(result[-1]) is dict,
            *(SHAPES, "step", "a tuple of 5 with a dict of info at last"),
            checks.summary(result),
        )
        names = ("observation", "reward", "terminated", "truncated")
        record = self._keep(dict(zip(names, result, strict=False)))
        self._require_fits(record)
        done = record["terminated"] | record["truncated"]
        following = self.reset(np.flatnonzero(done))
        return {**record, "following": following}

    def restart(self) -> dict[str, Any]:
        """Step by `start` and `finish`; return results in the form of `step`."""
        with _data("start and finish"):
            self.batch.start(self.actions(), restart=True)
            result = self.batch.finish()
        columns = transitions.Columns(self.batch.observation_space)
        reward, flags, last, following = columns.split(
            result.numbers, result.observation, result.following
        )
        terminated, truncated = flags.T > 0
        done = terminated | truncated
        conformance.require_same(
            RESTARTED, "finish done", done, np.asarray(result.done)
        )
        return self._keep(
            {
                "observation": columns.structure(last),
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "following": columns.structure([x[done] for x in following]),
            }
        )

    def require_unchanged(self) -> None:
        """Compare all returned arrays with copies made at their return."""
        for time, (returned, copy) in enumerate(self.kept):
            conformance.require_same(OWN, f"call {time}", copy, returned)

    def _require_fits(self, record: dict[str, Any]) -> None:
        size, flags = len(self.batch), np.zeros(len(self.batch), bool)
        observation, space = record["observation"], self.batch.observation_space
        conformance.require_fits(SHAPES, "step observation", space, size, observation)
        expected = {
            "reward": np.float32(flags),
            "terminated": flags,
            "truncated": flags,
        }
        got = {name: record[name] for name in expected}
        conformance.require_same_types(SHAPES, "step", expected, got)

    def _keep(self, returned: Any) -> Any:
        """Copy a result, and store both."""
        copy = spaces.transform(np.array, returned)
        self.kept.append((returned, copy))
        return copy


def _check_alone(batch: Any, seeds: np.ndarray, steps: int) -> list[Any]:
    """Check the first run; return its record."""
    conformance.require(len(batch) >= 3, SHAPES, "len", "3 or more rows", len(batch))
    for space in (batch.observation_space, batch.action_space):
        spaces.spec(space)  # Raises if it is not supported.
    run = _Run(batch)
    conformance.require_raises(
        RuntimeError, REFUSED, "step before the first reset", batch.step, run.actions()
    )
    run = _Run(batch)
    record = run.play(seeds, steps)
    run.require_unchanged()
    ended = [
        step for step in record[1:] if (step["terminated"] | step["truncated"]).any()
    ]
    conformance.require(ended, ENDS, f"all rows in {steps} steps", "an end", "none")
    leaked = all(conformance.same(_last(step), step["following"]) for step in ended)
    first = record[1]["observation"]
    constant = all(conformance.same(step["observation"], first) for step in record[1:])
    conformance.require(
        not leaked or constant,
        *(TRUE_LAST, "all ends", "what differs from the first of the next", "the same"),
    )
    return record


def _last(step: dict[str, Any]) -> Any:
    """Return the observations of done rows."""
    done = step["terminated"] | step["truncated"]
    return spaces.transform(lambda x: x[done], step["observation"])


def _check_side_by_side(
    batches: list[Any], record: list[Any], seeds: np.ndarray, steps: int
) -> None:
    """Check that three batches in equal states stay independent of disturbances."""
    run = _Run(batches[2])
    restarted = [run.reset(None, seeds), *(run.restart() for _ in range(steps))]
    run.require_unchanged()
    _require_same_record(RESTARTED, record, restarted)
    first, second, third = runs = [_Run(batch, seed=steps) for batch in batches]
    _check_refusals(second)
    expected, disturbed, _ = [run.step() for run in runs]
    conformance.require_same(UNTOUCHED, "next step", expected, disturbed)
    last = len(first.batch) - 1
    forward, backward = second.reset([0, last]), third.reset([last, 0])
    backward = spaces.transform(lambda x: x[::-1], backward)
    conformance.require_same(ORDER, f"rows 0 and {last}", forward, backward)
    for time in range(steps):
        expected, got = (_others(run.step()) for run in (first, third))
        conformance.require_same(ROWS, f"step {time} after it", expected, got)
    _check_ends(third, 2 * steps)
    for run in runs:
        run.require_unchanged()


def _others(step: dict[str, Any]) -> dict[str, Any]:
    """Return the results of rows except the first and the last."""
    names = ("observation", "reward", "terminated", "truncated")
    return {name: spaces.transform(lambda x: x[1:-1], step[name]) for name in names}


def _check_refusals(run: _Run) -> None:
    """Check that wrong actions, indices and seeds are refused."""
    batch, size = run.batch, len(run.batch)
    for what, wrong in _wrong_actions(batch.action_space, size):
        conformance.require_raises(ValueError, REFUSED, what, batch.step, wrong)
    for rows in ([size], [-1], [0, 0]):
        conformance.require_raises(
            ValueError, REFUSED, f"reset of rows {rows}", batch.reset, rows
        )
    for seeds in ([1], [-1] * size):
        conformance.require_raises(
            ValueError, REFUSED, f"reset with seeds {seeds}", batch.reset, None, seeds
        )


def _wrong_actions(space: gymnasium.Space, size: int) -> Iterator[tuple[str, Any]]:
    """Yield wrong batches of actions with their descriptions."""
    structure = spaces.spec(space)
    yield "step with too few actions", conformance.samples(space, 0, size - 1)
    names, parts = checks.names("action", structure), spaces.flatten(space)
    for index, (name, part) in enumerate(zip(names, parts, strict=True)):
        leaves = spaces.flatten(conformance.samples(space, 0, size))
        value = _outside(part)
        if value is None:
            continue
        wide = np.float32 if isinstance(value, float) else np.int64
        leaves[index] = leaves[index].astype(wide)
        leaves[index].reshape(size, -1)[-1, 0] = value
        yield f"step with {name} {value}", spaces.unflatten(structure, leaves)


def _outside(space: gymnasium.Space) -> Any:
    """Return a number that no element of a leaf space has; None without any."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start + space.n)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return int(space.start.flat[0] + space.nvec.flat[0])
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return 2
    high = space.high.flat[0]
    if not np.issubdtype(space.dtype, np.floating):
        widest = np.iinfo(np.int64)
        low = int(space.low.flat[0])
        return next(
            (x for x in (int(high) + 1, low - 1) if widest.min <= x <= widest.max), None
        )
    return float(high + abs(high) + 1) if np.isfinite(high) else float("nan")


def _check_ends(run: _Run, steps: int) -> None:
    """Step until a row is done; check that it must be reset."""
    batch = run.batch
    for _ in range(steps):
        _, _, terminated, truncated, _ = batch.step(run.actions())
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            batch.reset(done[1:])
            where = f"step of row {done[0]}, which is done"
            conformance.require_raises(
                RuntimeError, REFUSED, where, batch.step, run.actions()
            )
            return
    conformance.fail(ENDS, f"all rows in {steps} steps", "an end", "none")


def _play_alone(
    reference: Callable[[], gymnasium.Env], batch: Any, seeds: np.ndarray, steps: int
) -> list[Any]:
    """Play single environments; return the record in the form of `_Run.play`."""
    envs, run = [reference() for _ in seeds], _Run(batch)
    split = actions.splitter(batch.action_space)
    structure = spaces.spec(batch.observation_space)

    def stack(observations):
        columns = [spaces.flatten(x) for x in observations]
        leaves = [
            np.array([x[index] for x in columns], spec.dtype).reshape(-1, *spec.shape)
            for index, spec in enumerate(spaces.flatten(structure))
        ]
        return spaces.unflatten(structure, leaves)

    record = [stack(e.reset(seed=int(x))[0] for e, x in zip(envs, seeds, strict=True))]
    for _ in range(steps):
        chosen = split(spaces.flatten(run.actions()))
        results = [env.step(x) for env, x in zip(envs, chosen, strict=True)]
        observation, reward, terminated, truncated, _ = zip(*results, strict=True)
        step = {
            "observation": stack(observation),
            "reward": np.array(reward, np.float32),
            "terminated": np.array(terminated, bool),
            "truncated": np.array(truncated, bool),
        }
        done = np.flatnonzero(step["terminated"] | step["truncated"])
        record.append({**step, "following": stack(envs[x].reset()[0] for x in done)})
    for env in envs:
        env.close()
    return record


def _require_same_record(rule: str, expected: list[Any], got: list[Any]) -> None:
    """Compare the results of two runs, call by call."""
    for time, pair in enumerate(zip(expected, got, strict=True)):
        where = f"step {time}" if time else "first reset"
        conformance.require_same(rule, where, *pair)
