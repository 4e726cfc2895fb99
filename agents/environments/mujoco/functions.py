"""Results of a robot's functions: their checks, and the spaces that they imply."""

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from agents.environments.mujoco import robot as robot_
from agents.tools import checks, errors, processes, spaces

_KINDS = {"reward": ("numbers", "fiu"), "terminal": ("bool", "b")}


class ResultError(errors.Mistake, checks.EnvDataError):
    """Result of a robot's function with the wrong shape or dtype.

    It is a mistake in code but, like bad data, may appear at any step of a run.
    """


@contextlib.contextmanager
def running(robot: robot_.Robot, command: str) -> Iterator[None]:
    """Turn exceptions of a robot's functions into errors that show their traceback.

    Raises:
      EnvError: naming the robot and the command.
    """
    try:
        yield
    except (errors.Mistake, errors.Failure):
        raise
    except (Exception, SystemExit) as error:  # It would end the program from a graph.
        raise processes.failure(type(robot).__name__, command, error) from error


def column(robot: robot_.Robot, length: int, name: str, values: Any) -> np.ndarray:
    """Check rewards or flags `[length]`."""
    given = checks.array(values)
    expected, kinds = _KINDS[name]
    if given.shape != (length,) or given.dtype.kind not in kinds:
        raise _wrong(robot, name, values, f"{expected} [{length}]")
    return given


def leaves(robot: robot_.Robot, observation: Any, targets: list) -> list[np.ndarray]:
    """Check an observation, and return its leaves like the targets `[N, ...]`."""
    if type(observation) is np.ndarray:  # Others take longer.
        found = [observation]
    else:
        found = [checks.array(leaf) for leaf in spaces.flatten(observation)]
    fitting = len(found) == len(targets) and all(
        leaf.shape == target.shape and checks.fits(leaf, target.dtype)
        for leaf, target in zip(found, targets, strict=True)
    )
    if not fitting:
        wanted = ", ".join(checks.summary(target) for target in targets)
        raise _wrong(robot, "observation", observation, wanted)
    return found


def require_keys(robot: robot_.Robot, observation: Any, space: gymnasium.Space) -> None:
    """Raise ResultError unless an observation has the parts of its space."""
    found, expected = spaces.paths(observation), spaces.paths(space)
    if found != expected:
        raise ResultError(
            f"{type(robot).__name__}.observation has the parts {found}; expected those "
            f"of observation_space, {expected}."
        )


def observation_space(robot: robot_.Robot, observation: Any) -> gymnasium.Space:
    """Return the space of one row, given the observation of all."""
    if robot.observation_space is not None:
        return robot.observation_space
    return _space(robot, observation)


def action_space(robot: robot_.Robot, model: Any) -> gymnasium.Space:
    """Return the space of actions of one row, by default the range of controls."""
    if robot.action_space is not None:
        return robot.action_space
    low, high = model.actuator_ctrlrange.astype(np.float32).T
    free = np.flatnonzero(low >= high)
    if not model.nu or len(free):
        which = f"actuator {free[0]} without ctrlrange" if model.nu else "no actuators"
        raise ResultError(
            f"The model of {type(robot).__name__} has {which}; add what is missing, or "
            "set action_space and write control."
        )
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def control(robot: robot_.Robot, action: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return the controls `[N, nu]` of actions."""
    given = checks.array(robot.control(action))
    if given.shape != shape or given.dtype.kind not in "fiu":
        raise _wrong(robot, "control", given, f"numbers {list(shape)}")
    return given


def _space(robot: robot_.Robot, observation: Any) -> gymnasium.Space:
    """Return the unlimited space of observations like those of all rows."""
    if isinstance(observation, dict):
        parts = {key: _space(robot, x) for key, x in observation.items()}
        return gymnasium.spaces.Dict(parts)
    if isinstance(observation, tuple):
        return gymnasium.spaces.Tuple([_space(robot, x) for x in observation])
    leaf = checks.array(observation)
    if leaf.ndim < 1 or leaf.dtype.kind != "f":
        text = "floats [N, ...], or an observation_space for other dtypes"
        raise _wrong(robot, "observation", observation, text)
    return gymnasium.spaces.Box(-np.inf, np.inf, leaf.shape[1:], leaf.dtype)


def _wrong(robot: robot_.Robot, name: str, value: Any, expected: str) -> ResultError:
    """Create the error for the result of a function."""
    return ResultError(
        f"{type(robot).__name__}.{name} gives {checks.summary(value)}; expected "
        f"{expected}."
    )
