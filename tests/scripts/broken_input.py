"""Try thousands of mistakes on all commands, and report the outcomes.

    python tests/scripts/broken_input.py [--count N] [--seed N] [--only INDEX]

prints a table of how the commands answered, and what broke the rule: a mistake is one
line on the error stream, `error: ...`, with exit code 2, before any process is started.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import mutations

SECONDS = 2.0
"""Processor time in which every mistake must be answered."""
PATIENCE = 20.0
"""Seconds after which a process is given up, whatever it waits for."""
MEMORY = 8 << 30
"""Bytes that a command may allocate."""
LONGEST = 1_000
"""Characters of a line that a person may still read."""
SAMPLE = 50
"""One of so many valid command lines trains, plays or exports in earnest."""
SHORT = ("train.steps=8", "train.eval_every=8", "train.eval_episodes=1")
"""Overrides of runs in earnest."""


class Valid(BaseException):
    """The command has checked everything and is about to work."""

    raised = False
    """Whether it was, in this command: what makes environments frames all errors."""

    def __init__(self) -> None:
        super().__init__()
        Valid.raised = True


@dataclasses.dataclass(frozen=True)
class Answer:
    """Result of a command."""

    code: int | None
    """Exit code; none for an exception that nothing caught."""
    errors: str
    """Its error stream."""
    seconds: float
    """Processor time."""
    started: bool
    """Whether environments were started, or something would have been."""

    def verdict(self, foreign: bool) -> str:
        """How it answered, `refused`, `failed` or `valid`; else what is wrong."""
        first, _, rest = self.errors.partition("\n")
        if self.code is None:
            return "traceback"
        if "Traceback (most recent call last)" in rest and not foreign:
            return "traceback"
        if self.code == 0:
            return "slow" if self.seconds > SECONDS else "valid"
        if (self.code, self.started) not in ((2, False), (1, True)):
            return "wrong code"
        alone = not rest.strip() or (foreign and rest.startswith("\n"))
        readable = first.isprintable() and len(first) < LONGEST
        if not (first.startswith("error: ") and alone and readable):
            return "not one line"
        if self.seconds > SECONDS:
            return "slow"
        return "refused" if self.code == 2 else "failed"


GOOD = ("refused", "failed", "valid")
BAD = ("traceback", "hang", "wrong code", "not one line", "slow")


# One case.


def prepare(directory: pathlib.Path) -> None:
    """Make the runs and the study that cases damage."""
    from agents.experiments import named, runs, training
    from agents.tools import checkpoint
    from agents.tuning import space
    from agents.tuning import study as study_

    layers = ["algorithm.network.layers=[8]"]
    replay = [*layers, "algorithm.capacity=120000", "algorithm.batch_size=8"]
    for name, source, overrides in (
        ("gradient", "debug", [*layers, "environment.backend=serial"]),
        ("replay", "cartpole_dqn", replay),
    ):
        config = named.load(source, overrides)
        agent = runs.algorithm(config, runs.describe(config))
        run = directory / name
        training.prepare(run, config)
        rows = {"metrics": "score", "timing": "seconds"}
        for file, key in rows.items():
            lines = [
                {"phase": phase, "step": step, key: float(step)}
                for step in (0, 256, 512)
                for phase in ("train", "evaluate")
            ]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (run / f"{file}.jsonl").write_text(text)
        state = {"step": 512, "phase": 4, "metrics": 300, "timing": 300, "seconds": 1.5}
        checkpoints = checkpoint.Checkpoints(run / "checkpoints")
        checkpoints.save(256, agent.persistent(), {**state, "step": 256, "phase": 2})
        checkpoints.save(512, agent.persistent(), state)
    config = named.load("debug")
    (directory / "space.yaml").write_text(mutations.SPACE)
    study_.require_optuna()
    space_ = space.load(directory / "space.yaml")
    (directory / "study").mkdir()
    study_.prepare(directory / "study", config, space_)
    arguments = directory / "study", config, space_
    with (
        contextlib.redirect_stdout(None),
        mock.patch.object(study_.Study, "_attempt", _attempt),
    ):
        study = study_.Study(*arguments, None)
        study.search(2)
        study.report()


def _attempt(_: Any, trial: Any, scores: list[float]) -> tuple[str, str]:
    """A trial that is complete without training."""
    scores += [1.0, 2.0]
    trial.set_user_attr("steps", 512)
    return "complete", ""


@contextlib.contextmanager
def files(seed: int, index: int, runs: pathlib.Path) -> Iterator[mutations.Case]:
    """Case of an index, in a working directory that holds its files."""
    kept = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        case = mutations.make(seed, index, pathlib.Path(folder), runs)
        os.chdir(folder)
        try:
            yield case
        finally:
            os.chdir(kept)


def call(arguments: list[str], earnest: bool = False) -> Answer:
    """Answer of a command line, in this process.

    It stops where everything is checked: where the first step of an environment, the
    first process or the first file of an export would be. In earnest it does not; then
    environments are in this process, too.
    """
    from agents.scripts import cli

    if earnest and arguments[0] == "train":
        arguments = [*arguments, *(f"--set={assignment}" for assignment in SHORT)]
    path, before = sys.path.copy(), time.process_time()
    started: list[bool] = []
    Valid.raised = False
    with tempfile.TemporaryFile("w+", errors="backslashreplace") as errors:
        with _redirected(errors), _patched(started, earnest), warnings.catch_warnings():
            warnings.simplefilter("default")  # As in a process of its own.
            try:
                code = cli.main(arguments)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
                code = 0 if error.code is None else code
            except BaseException:
                traceback.print_exc()
                code = None
        errors.seek(0)
        text = errors.read()
    if Valid.raised:
        code, text = 0, ""
    sys.path[:] = path
    return Answer(code, text, time.process_time() - before, bool(started))


@contextlib.contextmanager
def _redirected(errors: Any) -> Iterator[None]:
    """Send what is written to the standard streams elsewhere, by libraries too."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        try:
            with (
                open(os.dup(1), "w", encoding="utf-8") as output,
                open(os.dup(2), "w", errors="backslashreplace", buffering=1) as stream,
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(stream),
            ):
                yield
        finally:
            for number, descriptor in zip((1, 2), kept, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)


@contextlib.contextmanager
def _patched(started: list[bool], earnest: bool) -> Iterator[None]:
    """Environments in this process; an end where work would begin."""
    from agents.distributed import cluster
    from agents.experiments import curves, runs
    from agents.experiments import policy as policy_
    from agents.scripts import commands
    from agents.tools import processes, simulation

    def begin(*_: Any, **__: Any) -> None:
        started.append(True)
        raise Valid

    real = runs.environments

    def environments(config: Any, **changes: Any) -> Any:
        changes["backend"] = "serial"
        if not earnest:  # Nothing steps them.
            changes["num_agents"] = 2
        batch = real(config, **changes)
        started.append(True)
        return batch

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (commands, "start_tensorflow", lambda debug=False: None),
            (commands, "use_threads", lambda config: None),
            (curves, "DPI", 10),
            (cluster, "_start", begin),
            (processes, "Worker", begin),
            ("subprocess", "Popen", begin),
        ):
            target = sys.modules[target] if isinstance(target, str) else target
            stack.enter_context(mock.patch.object(target, name, value))
        if not earnest:
            stack.enter_context(mock.patch.object(simulation, "simulate", begin))
            stack.enter_context(
                mock.patch.object(policy_.ExportablePolicy, "_function", begin)
            )
        stack.enter_context(mock.patch.object(runs, "environments", environments))
        yield


# Many cases.


def _serve(connection: Any, seed: int, runs: pathlib.Path) -> None:
    """Answer indices, each by its case and what came of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    import subprocess  # noqa: F401

    from agents.scripts import commands

    commands.start_tensorflow()
    if not any(runs.iterdir()):
        prepare(runs)
    connection.send(None)
    while True:
        index, earnest = connection.recv()
        with files(seed, index, runs) as case:
            connection.send(case)
            answer = call(case.arguments, earnest)
        connection.send(answer)


@dataclasses.dataclass(frozen=True)
class Result:
    """Verdict on one case."""

    index: int
    case: mutations.Case
    verdict: str
    answer: Answer | None
    earnest: bool = False


class _Process:
    """A process with TensorFlow that answers one case after the other."""

    def __init__(self, seed: int, runs: pathlib.Path) -> None:
        self._arguments = seed, runs
        self.task: tuple[int, bool] | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._arguments))
        self._process.start()
        theirs.close()
        self.connection.recv()

    def send(self, task: tuple[int, bool]) -> None:
        """Give it an index, and whether in earnest."""
        self.task, self._deadline = task, time.monotonic() + PATIENCE
        self._case = mutations.Case("", [])
        self.connection.send(task)

    def receive(self, ready: bool) -> Result | None:
        """Result, if there is something to receive or no time left."""
        index, earnest = self.task
        answer, late = None, time.monotonic() > self._deadline
        if ready:
            try:
                message = self.connection.recv()
            except EOFError:  # It has ended.
                late = True
            else:
                if isinstance(message, mutations.Case):
                    self._case = message
                    return None
                answer = message
        elif not late:
            return None
        self.task = None
        if answer is None:
            self.close()
            self._start()
            return Result(
                index, self._case, "valid" if earnest else "hang", None, earnest
            )
        verdict = answer.verdict(self._case.foreign)
        if earnest and verdict == "slow":
            verdict = "valid"
        return Result(index, self._case, verdict, answer, earnest)

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def search(
    count: int, seed: int, num_processes: int = 2, progress: bool = False
) -> list[Result]:
    """Results of so many cases, and of a sample of the valid ones in earnest."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        runs = pathlib.Path(folder)
        workers = [_Process(seed, runs) for _ in range(num_processes)]
        tasks = collections.deque((index, False) for index in range(count))
        valid = 0
        try:
            while tasks or any(worker.task for worker in workers):
                for worker in workers:
                    if worker.task is None and tasks:
                        worker.send(tasks.popleft())
                busy = [worker for worker in workers if worker.task]
                ready = multiprocessing.connection.wait(
                    [worker.connection for worker in busy], 0.5
                )
                for worker in busy:
                    result = worker.receive(worker.connection in ready)
                    if result is None:
                        continue
                    results.append(result)
                    if result.verdict == "valid" and not result.earnest:
                        valid += 1
                        if valid % SAMPLE == 0:
                            tasks.append((result.index, True))
                    if progress and result.verdict in BAD:
                        print(describe(result), flush=True)
        finally:
            for worker in workers:
                worker.close()
    return results


def describe(result: Result) -> str:
    """One case that broke the rule."""
    words = [x if len(x) < 300 else f"{x[:300]}..." for x in result.case.arguments]
    lines = [f"{result.index} {result.verdict}: {words!r}"]
    if result.answer:
        lines[0] += f" code {result.answer.code}, {result.answer.seconds:.1f} s"
        text = result.answer.errors.strip().splitlines()
        lines += [f"    {line[:200]}" for line in [*text[:2], *text[-4:]]]
    return "\n".join(lines)


def table(results: list[Result]) -> str:
    """Verdicts by kind of input, as Markdown."""
    columns = (*GOOD, *BAD)
    lines = [
        f"| kind of input | mutations | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * (len(columns) + 1)}",
    ]
    groups = {
        kind: [r for r in results if r.case.kind == kind] for kind in mutations.KINDS
    }
    for kind, group in {**groups, "all": results}.items():
        counts = collections.Counter(r.verdict for r in group if not r.earnest)
        numbers = [f"{counts[column]:,}" for column in columns]
        lines.append(f"| {kind} | {sum(counts.values()):,} | {' | '.join(numbers)} |")
    earnest = collections.Counter(r.verdict for r in results if r.earnest)
    lines.append(f"\nIn earnest: {dict(earnest)}")
    return "\n".join(lines)


def main() -> int:
    """Search, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, with all that it says")
    parser.add_argument("--earnest", action="store_true")
    parser.add_argument("--keep", help="directory for the files of --only")
    args = parser.parse_args()
    if args.only is not None:
        from agents.scripts import commands

        commands.start_tensorflow()
        with tempfile.TemporaryDirectory() as folder:
            prepare(pathlib.Path(folder))
            with files(args.seed, args.only, pathlib.Path(folder)) as case:
                if args.keep:
                    shutil.copytree(".", args.keep, symlinks=True)
                answer = call(case.arguments, args.earnest)
        print(case, answer.code, answer.seconds, answer.started)
        print(answer.errors)
        print(answer.verdict(case.foreign))
        return 0
    start = time.monotonic()
    results = search(args.count, args.seed, progress=True)
    print(table(results))
    print(f"{time.monotonic() - start:.0f} s")
    return int(any(result.verdict in BAD for result in results))


if __name__ == "__main__":
    sys.exit(main())
