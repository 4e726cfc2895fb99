"""Checks of the rows of Gymnasium's vector environments, naming those that fail.

Gymnasium accepts any object as a flag and text as a reward, and does not name the row.
Therefore the environments are wrapped, those of `AsyncVectorEnv` in its processes.
"""

import contextlib
import functools
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
from gymnasium.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorEnv,
    async_vector_env,
)

from agents.tools import checks, processes, spaces, transitions

_gymnasiums_worker = async_vector_env._async_worker


class Checked(gymnasium.Wrapper):
    """Wrapper of one row, which checks results before they are converted.

    Attributes:
      row: Number of the row in the whole batch.
      current: Sequence with the number of the busy row as first item.
    """

    def __init__(self, env: gymnasium.Env, row: int):
        super().__init__(env)
        self.row, self.current = row, [-1]
        found = env.observation_space, env.action_space
        buffers = transitions.Buffers.create(*found, 1)
        self._writer, _ = buffers.writers(env.observation_space, row)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.current[0] = self.row
        result = self.env.reset(seed=seed, options=options)
        self._writer.reset(0, result)
        return result

    def step(self, action: Any):
        self.current[0] = self.row
        result = self.env.step(action)
        self._writer.step(0, result)
        return result


class Alone(Checked):
    """Checking wrapper in a separate process, from which errors return as text."""

    def reset(self, **kwargs: Any):
        with _telling(self.row, "reset"):
            return super().reset(**kwargs)

    def step(self, action: Any):
        with _telling(self.row, "step"):
            return super().step(action)


def prepare(first_row: int):
    """Check the environments of every `AsyncVectorEnv` that this process creates.

    This package reports their errors once.
    """
    async_vector_env._async_worker = functools.partial(_work, first_row)
    noise = ".*ERROR: (Received the following|Raising the last|Traceback)"
    warnings.filterwarnings("ignore", noise, UserWarning)


def wrap(env: VectorEnv, first_row: int):
    """Check the environments of a `SyncVectorEnv`."""
    inner = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        rows = enumerate(inner.envs, first_row)
        inner.envs = [_checked(Checked, one, row) for row, one in rows]


def tell(env: VectorEnv, current: Any):
    """Let the environments of a `SyncVectorEnv` store which of them is busy."""
    for one in getattr(env.unwrapped, "envs", ()):
        if isinstance(one, Checked):
            one.current = current


@contextlib.contextmanager
def blaming(first_row: int, command: str) -> Iterator[None]:
    """Find the process of an `AsyncVectorEnv` behind an exception, if any.

    Its row becomes the attribute `agents_row` of the exception, which is raised again.

    Raises:
      EnvError: if the process has ended.
    """
    try:
        yield
    except (checks.EnvDataError, processes.EnvError):
        raise
    except BaseException as error:
        frames = traceback.walk_tb(error.__traceback__)
        callers = [frame.f_locals.get("self") for frame, _ in frames]
        for env in callers:
            if isinstance(env, AsyncVectorEnv):
                row = _row_of_process(env, callers, error, first_row, command)
                if row is not None:
                    error.agents_row = row
                break
        raise


def _row_of_process(
    env: AsyncVectorEnv,
    callers: list[Any],
    error: BaseException,
    first_row: int,
    command: str,
) -> int | None:
    """Return the row of the process behind an exception, by the pipe in use."""
    for index, pipe in enumerate(getattr(env, "parent_pipes", ())):
        if pipe is not None and not any(x is pipe for x in callers):
            continue
        process, row = env.processes[index], first_row + index
        if isinstance(error, EOFError | OSError):
            process.join(1.0)
        if process.exitcode is None or pipe is None:
            return row
        end = processes.describe_end(process.exitcode)
        raise processes.EnvError(
            f"Environment row {row}: process {process.pid} of AsyncVectorEnv ended "
            f"({end}); last command: {command}."
        ) from error
    return None


def _checked(cls: type[Checked], env: Any, row: int) -> Any:
    """Wrap an environment, unless Gymnasium or its space does not allow that."""
    if not isinstance(env, gymnasium.Env):
        return env
    try:
        return cls(env, row)
    except spaces.UnsupportedSpaceError:
        return env


@contextlib.contextmanager
def _telling(row: int, command: str) -> Iterator[None]:
    """Convert errors to text with row and process."""
    place = f"Environment row {row}"
    try:
        yield
    except checks.EnvDataError as error:
        raise checks.located(place, error) from None
    except (Exception, SystemExit) as error:
        who = f"{place}: process {os.getpid()} of AsyncVectorEnv"
        raise processes.failure(who, command, error) from None


def _work(
    first_row: int,
    index: int,
    constructor: Callable[[], gymnasium.Env],
    pipe: Any,
    parent_pipe: Any,
    memory: Any,
    errors: Any,
    mode: AutoresetMode,
    *rest: Any,
):
    """Run a worker of `AsyncVectorEnv` that checks its environment.

    Gymnasium's own worker prints exceptions of constructors to the terminal only.
    Without shared memory it also forgets that it was reset after an episode, and would
    reset itself once more in the next step, so it never does.
    """
    row = first_row + index
    try:
        with _telling(row, "start"):
            env = _checked(Alone, constructor(), row)
    except processes.EnvError as error:
        parent_pipe.close()
        with contextlib.suppress(EOFError):
            pipe.recv()  # The caller only reads answers of processes that listened.
        errors.put((index, type(error), error, traceback.format_exc()))
        pipe.send((None, False))
        return
    if mode == AutoresetMode.NEXT_STEP:
        mode = AutoresetMode.DISABLED
    arguments = pipe, parent_pipe, memory, errors, mode, *rest
    _gymnasiums_worker(index, lambda: env, *arguments)
