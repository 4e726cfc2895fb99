"""Faults of environments, injected on every backend except `mujoco` and `envpool`.

    python benchmarks/faults.py [--backends workers serial] [--faults step reset/hang]

One of four environments misbehaves when it is made, reset, stepped or closed, or the
trainer is killed. Every cell of the table is a run of `simulate`. It must end in time
with one line that names the fault, or go on where nothing is lost, and leave no process
and no shared memory behind. Cells that do not are listed, with exit code 1.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import psutil

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from agents.environments import Environment, make, serial, vector, workers  # noqa: E402
from agents.tools import batch_env, errors, processes, wrappers  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE, ROW = 4, 2
TIMEOUT, START_TIMEOUT = 2.0, 15.0
PATIENCE = 30.0
"""Seconds for work that takes a few on an idle machine."""
MARK = "AGENTS_FAULTS"
"""Variable that all processes of a cell inherit."""
VECTORS = {
    "sync": gymnasium.vector.SyncVectorEnv,
    "async": gymnasium.vector.AsyncVectorEnv,
}
BACKENDS = ("serial", "process", "workers", *VECTORS, "own", "compiled")
"""The vector backend appears three times: twice by Gymnasium, once by our own class."""

SPACE = gymnasium.spaces.Dict(
    bits=gymnasium.spaces.MultiBinary(3),
    box=gymnasium.spaces.Box(-1, 1, (2,)),
    choice=gymnasium.spaces.Discrete(5),
    free=gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
    pair=gymnasium.spaces.MultiDiscrete([2, 3]),
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Fault to inject, and the message that it must cause.

    Attributes:
      where: `make`, `reset`, `step` or `close`.
      name: Description of the fault.
      says: Regular expression for the first line; none if the run must go on.
      act: Function called at this point.
      change: Function from the result of the environment to a wrong one.
      apart: Whether only a separate process can have the fault and be ended.
      rows: Number of environments with the fault.
      whole: Whether a vector environment that stacks it hides the row.
      goes_on: Backends on which the run goes on regardless.
      warns: Regular expression for a warning.
    """

    where: str
    name: str
    says: str | None = None
    act: Callable[[], None] = lambda: None
    change: Callable[[Any], Any] = lambda x: x
    apart: bool = False
    rows: int = 1
    whole: bool = False
    goes_on: tuple[str, ...] = ()
    warns: str | None = None


class Unpicklable(Exception):
    """Exception that cannot be sent to another process."""

    def __reduce__(self):
        raise TypeError("not to be pickled")


class TwoArguments(Exception):
    """Exception that cannot be made again from its text."""

    def __init__(self, one: str, two: str):
        super().__init__(one)


def throw(cls: type[BaseException], *arguments: Any) -> Callable[[], None]:
    """Function that raises."""

    def fault():
        raise cls(*arguments)

    return fault


def kill(number: int = signal.SIGKILL) -> Callable[[], None]:
    """Function that sends a signal to its process."""
    return lambda: os.kill(os.getpid(), number)


def sleep():
    """Hang without using the processor."""
    time.sleep(1000)


def spin():
    """Hang in a loop."""
    while True:
        pass


def be_deaf():
    """Hang and ignore all signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    sleep()


def chat():
    """Write more than fits into any pipe."""
    print("x" * 5_000_000)
    print("x" * 5_000_000, file=sys.stderr)


def with_process(then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Function that starts a program that nothing ends, and then calls another one."""

    def fault():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        then()

    return fault


def with_fork(then: Callable[[], None]) -> Callable[[], None]:
    """Function like `with_process` with a fork, which keeps all connections."""

    def fault():
        if os.fork():
            then()
        sleep()

    return fault


RAISED = "ZeroDivisionError: the fault"
KILLED = "process \\d+ .*SIGKILL"
HANGS = "(process \\d+ did not answer|not done) within"
ACTS = {  # Expected message, and action.
    "raise": (RAISED, throw(ZeroDivisionError, "the fault")),
    "raise unpicklable": ("Unpicklable: mine", throw(Unpicklable, "mine")),
    "raise of two arguments": ("TwoArguments: one", throw(TwoArguments, "one", "two")),
    "sys.exit(4)": ("SystemExit(: |\\()4", throw(SystemExit, 4)),
    "10 MB of output": (None, chat),
}
ACTS_APART = {
    "own process, then raise": (
        RAISED,
        with_process(throw(ZeroDivisionError, "the fault")),
    ),
    "os._exit(3)": ("process \\d+ .*exit code 3", lambda: os._exit(3)),
    "SIGKILL": (KILLED, kill()),
    "SIGSEGV": ("process \\d+ .*SIGSEGV", lambda: ctypes.string_at(0)),
    "own process, then SIGKILL": (KILLED, with_process(kill())),
    "own fork, then SIGKILL": (KILLED, with_fork(kill())),
    "close all descriptors": ("process \\d+ ", lambda: os.closerange(3, 4096)),
    "hang asleep": (HANGS, sleep),
    "hang in a loop": (HANGS, spin),
    "hang, deaf to signals": (HANGS, be_deaf),
}


def part(name: str, value: Any) -> Callable[[Any], Any]:
    """Function that changes one part of an observation."""
    return lambda observation: {**observation, name: value}


def drop(observation: dict) -> dict:
    """Observation without a part."""
    return {name: x for name, x in observation.items() if name != "choice"}


VALUES = {  # Expected message, and change of an observation.
    "NaN": ("free .*not finite", part("free", np.float32([0, np.nan]))),
    "infinity": ("free .*not finite", part("free", np.float32([np.inf, 0]))),
    "NaN in a bounded box": ("box .*not finite", part("box", np.float32([0, np.nan]))),
    "Discrete(5) = 7": ("choice is 7, .*from 0 to 4", part("choice", np.int64(7))),
    "Discrete(5) = -1": ("choice is -1, .*from 0 to 4", part("choice", np.int64(-1))),
    "MultiBinary = 3": ("bits\\[1\\] is 3, .*0 to 1", part("bits", np.int8([0, 3, 0]))),
    "MultiDiscrete = 3": ("pair\\[1\\] is 3, .*0 to 2", part("pair", np.array([0, 3]))),
}
SHAPES = {
    "wrong shape": ("box", part("box", np.zeros(3, np.float32))),
    "one dimension more": ("box", part("box", np.zeros((1, 2), np.float32))),
    "complex": ("box", part("box", np.zeros(2, complex))),
    "text": ("box", part("box", "zero")),
    "ragged list": ("box", part("box", [[0.0], [0.0, 1.0]])),
    "float for Discrete": ("choice", part("choice", 1.5)),
    "None for a part": ("box", part("box", None)),
    "part missing": ("choice", drop),
    "None": ("observation", lambda _: None),
}
FLAG = "terminated to be true or false, got"
RESULTS = {  # Expected message, and values of `step` by position.
    "reward NaN": ("reward nan is not finite", {1: np.nan}),
    "reward 1e300": ("reward inf is not finite", {1: 1e300}),
    "reward None": ("reward to be a number, got NoneType", {1: None}),
    "reward '1.0'": ("reward to be a number, got str", {1: "1.0"}),
    "reward complex": ("reward to be a number, got complex", {1: 1j}),
    "reward of two": ("reward to be a number, got float64", {1: np.ones(2)}),
    "terminated 'no'": (f"{FLAG} str 'no'", {2: "no"}),
    "terminated None": (f"{FLAG} NoneType", {2: None}),
    "terminated 2": (f"{FLAG} int(64)? (np.int64\\()?2", {2: 2}),
    "terminated of two": (f"{FLAG} bool", {2: np.zeros(2, bool)}),
    "truncated 'yes'": ("truncated to be true or false, got str", {3: "yes"}),
}
TUPLES = {
    "one value less": lambda result: result[:-1],
    "one value more": lambda result: (*result, 0),
    "None for all": lambda _: None,
    "a number for all": lambda _: 5,
}


def faults() -> list[Fault]:
    """All faults, in the order of the table."""
    result = []
    for where in ("make", "reset", "step"):
        result += [Fault(where, name, *pair) for name, pair in ACTS.items()]
        result += [
            Fault(where, name, *pair, apart=True) for name, pair in ACTS_APART.items()
        ]
    for where in ("reset", "step"):
        for whole, values in ((False, VALUES), (True, SHAPES)):
            for name, (says, change) in values.items():
                given = {"change": in_observation(change), "whole": whole}
                result.append(Fault(where, name, says, **given))
        far = in_observation(part("box", np.float32([0, 5])))
        says = "row [02]: observation box\\[1\\] is 5.0.*from -1.0 to 1.0"
        result.append(Fault(where, "Box(-1, 1) = 5", change=far, warns=says))
        for name, change in TUPLES.items():
            says = f"{where} must return"
            result.append(Fault(where, name, says, change=change, whole=True))
    for name, (says, values) in RESULTS.items():
        given = {"change": replace(values), "whole": name == "reward complex"}
        result.append(Fault("step", name, says, **given))
    on = "serial", "workers", "sync", "own"
    given = {"change": with_lock, "goes_on": on}
    result.append(Fault("step", "unpicklable info", "pickle", **given))
    for name, (_, act) in {**ACTS, **ACTS_APART}.items():
        apart = name in ACTS_APART and "hang" not in name
        result.append(Fault("close", name, None, act, apart=apart))
    result.append(Fault("close", "all hang", None, sleep, rows=SIZE))
    leave = with_process()
    result.append(Fault("make", "own process left alone", None, leave, apart=True))
    return result


def in_observation(change: Callable) -> Callable:
    """Function that changes the observation in a result of step or reset."""
    return lambda result: (change(result[0]), *result[1:])


def replace(values: dict[int, Any]) -> Callable:
    """Function that changes some of the values that step returns."""
    return lambda result: tuple(values.get(i, x) for i, x in enumerate(result))


def with_lock(result: tuple) -> tuple:
    """Result with an object in its info that cannot be sent."""
    return (*result[:4], {"lock": threading.Lock()})


class Faulty(gymnasium.Env):
    """Episodes of three steps; misbehaves in the second reset, or the second step."""

    def __init__(self, fault: Fault | None = None):
        self.observation_space, self.action_space = SPACE, gymnasium.spaces.Discrete(2)
        self._fault, self._resets, self._time = fault, 0, 0
        self._happens("make")

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._resets, self._time = self._resets + 1, 0
        result = self._observe(), {}
        return self._happens("reset", result) if self._resets == 2 else result

    def step(self, action: int):
        self._time += 1
        result = self._observe(), 1.0, self._time == 3, False, {}
        return self._happens("step", result) if self._time == 2 else result

    def close(self):
        self._happens("close")

    def _happens(self, where: str, result: Any = None) -> Any:
        if self._fault is None or self._fault.where != where:
            return result
        self._fault.act()
        return self._fault.change(result)

    @staticmethod
    def blank() -> dict:
        """An observation."""
        return {
            "bits": np.zeros(3, np.int8),
            "box": np.zeros(2, np.float32),
            "choice": np.int64(0),
            "free": np.zeros(2, np.float32),
            "pair": np.zeros(2, np.int64),
        }

    def _observe(self) -> dict:
        free = self.np_random.normal(size=2).astype(np.float32)
        return {**self.blank(), "free": free}


class Own(gymnasium.vector.VectorEnv):
    """Vector environment of a careless user: it stacks all results unchecked."""

    def __init__(self, made: list[Callable[[], gymnasium.Env]]):
        self.num_envs = len(made)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
        self.single_observation_space = SPACE
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self._envs = [constructor() for constructor in made]
        self._latest = [None] * len(made)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for row in np.flatnonzero(mask):
            result = self._envs[row].reset()
            if not isinstance(result, tuple) or len(result) != 2:
                return result
            self._latest[row] = result[0]
        return self._stack(), {}

    def step(self, actions: np.ndarray):
        results = [e.step(x) for e, x in zip(self._envs, actions, strict=True)]
        for result in results:
            if not isinstance(result, tuple) or len(result) != 5:
                return result
        latest, *others, _ = zip(*results, strict=True)
        self._latest = list(latest)
        return self._stack(), *map(join, others), {}

    def close_extras(self, **kwargs: Any):
        for env in self._envs:
            env.close()

    def _stack(self) -> Any:
        if None in self._latest:
            return None
        names = set(SPACE).intersection(*self._latest)
        return {name: join([x[name] for x in self._latest]) for name in names}


def join(values: Any) -> np.ndarray:
    """Array of values, of dtype object if they are of different kinds."""
    with contextlib.suppress(ValueError):
        array = np.array(values)
        if array.dtype.kind != "U":
            return array
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def batch(backend: str, fault: Fault) -> batch_env.Backend:
    """Four environments, of which one misbehaves, or all."""
    made = [functools.partial(Faulty) for _ in range(SIZE)]
    for row in (ROW,) if fault.rows == 1 else range(SIZE):
        made[row] = functools.partial(Faulty, fault)
    waits = TIMEOUT, START_TIMEOUT
    if backend == "serial":
        return serial.Serial(made)
    if backend == "process":
        envs = [wrappers.ExternalProcess(constructor, *waits) for constructor in made]
        return batch_env.BatchEnv(envs, blocking=False)
    if backend == "workers":
        return workers.Workers(made, 2, *waits)
    cls = VECTORS.get(backend, Own)
    return vector.Vector(lambda num_envs: cls(made), SIZE, None, *waits)


def play(envs: Any) -> None:
    """Six steps in the graph."""
    import tensorflow as tf

    from agents.tools import algorithm, in_graph_batch_env, simulation

    if isinstance(envs, batch_env.Backend):
        envs = in_graph_batch_env.InGraphBatchEnv(envs)
    agent = algorithm.Algorithm()
    agent.perform = lambda rows, *_: tf.zeros_like(rows, tf.int64)
    simulation.simulate(envs, agent, 6, training=False)


def play_compiled(fault: Fault) -> None:
    """Six steps of functional environments with the fault, in one program."""
    import tensorflow as tf

    from agents.environments import compiled, functional

    class Function(functional.FunctionalEnv):
        observation_space, action_space = SPACE, gymnasium.spaces.Discrete(2)
        max_length = 3

        def __init__(self):
            if fault.where == "make":
                fault.act()

        def initial(self, size, seed):
            return tf.random.stateless_uniform([size, 1], seed)

        def transition(self, state, action, seed):
            if fault.where == "step":
                fault.act()
            return state + 1.0

        def observation(self, state):
            row, _ = fault.change((Faulty.blank(), {}))
            size = state.shape[0]
            return {name: tf.constant(np.stack([x] * size)) for name, x in row.items()}

        def reward(self, state, action, next_state):
            return state[:, 0]

        def terminal(self, state):
            return state[:, 0] > 2.5

    make.describe(Environment(Function, "compiled", start_timeout=TIMEOUT))
    play(compiled.Compiled(Function(), SIZE))


def compiles(fault: Fault) -> bool:
    """Return whether functional environments can have a fault the trainer survives."""
    if fault.where == "reset":
        return fault.name in {**VALUES, **SHAPES} or bool(fault.warns)
    name = fault.name in ACTS or (fault.name in ACTS_APART and fault.says == HANGS)
    return fault.where in ("make", "step") and name and fault.act is not be_deaf


def run(backend: str, fault: Fault) -> tuple[str, str | None]:
    """Return the result of a cell, and the mistake in it, if there is one."""
    importlib.import_module("tensorflow")  # The first import takes long.
    os.environ[MARK] = mark = uuid.uuid4().hex
    memory, notes, start = set(os.listdir("/dev/shm")), [], time.monotonic()
    gc.collect()
    files = psutil.Process().num_fds()
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        with _captured(notes, file):
            error = attempt(backend, fault)
        file.seek(0)
        output = "\n".join(line[:200] for line in file.read().splitlines()[-30:])
    seconds = time.monotonic() - start
    shows, problem = judge(backend, fault, error, notes)
    limit = PATIENCE + (START_TIMEOUT if fault.says == HANGS else 0)
    if seconds > limit:
        problem = f"took {seconds:.0f} s"
    if left := remaining(mark, 5.0):
        problem = f"left processes {left}"
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    if left := new_memory(memory):
        problem = f"left shared memory {left}"
    error = None  # Its traceback holds references.
    gc.collect()
    if (left := psutil.Process().num_fds() - files) > 0:
        problem = f"left {left} open files"
    return shows, problem and f"{problem}\n{output}"


def attempt(backend: str, fault: Fault) -> BaseException | None:
    """Return the error that a run ends with, if any."""
    try:
        if backend == "compiled":
            play_compiled(fault)
            return None
        envs = batch(backend, fault)
        try:
            play(envs)
        finally:
            start = time.monotonic()
            envs.close()
            seconds = time.monotonic() - start
        if seconds > 2 * processes.GRACE + 2:
            return TimeoutError(f"close took {seconds:.1f} s")
    except BaseException as error:
        return error
    return None


EXPECTED = errors.Mistake, errors.Failure
"""Errors that commands print as one line."""


def judge(
    backend: str, fault: Fault, error: BaseException | None, notes: list[str]
) -> tuple[str, str | None]:
    """Return the result of a cell, and the mistake in its error or warnings, if any."""
    says = fault.says
    if (backend, fault.name) == ("async", "all hang"):
        says = HANGS  # It makes one more environment and closes that at the start.
    goes_on = says is None or backend in fault.goes_on
    wanted = [fault.warns] if fault.warns else []
    if len(notes) != len(wanted) or not all(map(re.search, wanted, notes)):
        return "?", f"warnings are {notes}"
    if error is None:
        shows = "warns" if wanted else "on"
        return shows, None if goes_on else "goes on"
    if not isinstance(error, EXPECTED):
        return "?", "".join(traceback.format_exception(error))
    first, *rest = str(error).splitlines()
    shows = "row" if re.match(f"Environment row {ROW}\\b", first) else "rows"
    traced = backend == "compiled" and "fail when they are traced" in first
    if goes_on or not (traced or re.search(says, first)):
        return shows, f"says {first}"
    if shows != "row" and not hides_row(backend, fault):
        return shows, f"names no row: {first}"
    if rest and (rest[0] or not rest[1].startswith("Traceback")):
        return shows, f"has more lines: {rest[0]}"
    if fault.says == RAISED and not any("in fault" in line for line in rest):
        return shows, "shows no traceback of the environment"
    return shows, None


def hides_row(backend: str, fault: Fault) -> bool:
    """Return whether only the environment itself could know the row."""
    if fault.name == "close all descriptors":  # Seen after the step of all rows.
        return True
    if backend == "sync":
        return fault.where == "make"
    if (backend, fault.name) == ("async", "all hang"):
        return True
    acts = fault.name in {**ACTS, **ACTS_APART}
    return backend == "compiled" or (backend == "own" and (acts or fault.whole))


def kill_trainer(backend: str, case: str) -> tuple[str, str | None]:
    """Return the result of a cell, like `run`, in which a trainer is killed."""
    mark = uuid.uuid4().hex
    memory = set(os.listdir("/dev/shm"))
    trainer = subprocess.Popen(
        [sys.executable, __file__, "--trainer", backend, case],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    )
    with trainer:
        ready = trainer.stdout.readline()
        trainer.kill()
    problem = None if ready == b"ready\n" else f"says {ready}"
    if left := remaining(mark, PATIENCE):
        problem = f"left processes {left}"
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    if left := new_memory(memory):
        problem = f"left shared memory {left}"
    return "gone", problem


def new_memory(before: set[str]) -> set[str]:
    """Blocks of shared memory that were not there before, and stay."""
    end = time.monotonic() + 5.0
    while left := set(os.listdir("/dev/shm")) - before:
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return left


def say_and_sleep():
    """Announce that this process hangs, and hang."""
    os.write(1, b"ready\n")
    sleep()


TRAINERS = {
    "SIGKILL while idle": Fault("close", "none"),
    "SIGKILL while an environment hangs": Fault("step", "hang", None, say_and_sleep),
    "SIGKILL with processes of environments": Fault(
        "make", "own", None, with_process()
    ),
}


def be_trainer(backend: str, case: str) -> None:
    """Run a trainer until it is killed."""
    global TIMEOUT
    TIMEOUT = 1000.0
    fault = TRAINERS[case]
    envs = batch(backend, fault)
    envs.reset()
    if fault.act is say_and_sleep:
        while True:
            envs.step(np.zeros(SIZE, np.int64))
    say_and_sleep()


def remaining(mark: str, seconds: float) -> list[int]:
    """Other processes with a mark that remain after at most this many seconds."""
    end = time.monotonic() + seconds
    while True:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                    found.append(process.pid)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


@contextlib.contextmanager
def _captured(notes: list[str], file: Any) -> Iterator[None]:
    """Collect warnings of the package, and the output of all processes in a file."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: notes.append(record.getMessage())
    logger = logging.getLogger("agents")
    logger.addHandler(handler)
    kept = [os.dup(number) for number in (1, 2)]
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, old in zip((1, 2), kept, strict=True):
            (sys.stdout, sys.stderr)[number - 1].flush()
            os.dup2(old, number)
            os.close(old)
        logger.removeHandler(handler)


def cells(backends: list[str], patterns: list[str]) -> Iterator[tuple]:
    """Yield place, name, backend and function of all chosen cells."""
    for fault in faults():
        for backend in backends:
            fits = not fault.apart if backend == "serial" else backend != "compiled"
            hangs = backend == "serial" and fault.says == HANGS
            if compiles(fault) if backend == "compiled" else fits and not hangs:
                function = functools.partial(run, backend, fault)
                yield fault.where, fault.name, backend, function
    for case in TRAINERS:
        for backend in backends:
            if backend not in ("serial", "compiled"):
                function = functools.partial(kill_trainer, backend, case)
                yield "trainer", case, backend, function


def main() -> int:
    """Run the chosen cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument(
        "--faults", nargs="+", default=[""], help="beginnings of WHERE/NAME"
    )
    parser.add_argument("--trainer", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trainer:
        be_trainer(*args.trainer)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    table, problems = {}, []
    for where, name, backend, function in cells(args.backends, args.faults):
        place = f"{where}/{name}"
        if not place.startswith(tuple(args.faults)):
            continue
        start = time.monotonic()
        shows, problem = function()
        seconds = time.monotonic() - start
        print(f"{place} {backend}: {shows} {seconds:.1f} s", file=sys.stderr)
        if problem:
            print(problem, file=sys.stderr)
        table.setdefault((where, name), {})[backend] = (
            f"**{shows}**" if problem else shows
        )
        if problem:
            problems.append(f"{place} by {backend}: {problem}")
    print(f"| where | fault | {' | '.join(args.backends)} |")
    print(f"| --- | --- |{' --- |' * len(args.backends)}")
    for (where, name), row in table.items():
        shown = " | ".join(row.get(backend, "") for backend in args.backends)
        print(f"| {where} | {name} | {shown} |")
    count = sum(map(len, table.values()))
    print(f"\n{count} cells, {len(problems)} wrong")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
