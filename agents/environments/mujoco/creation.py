"""Batches of robots and of Gymnasium's tasks, by their descriptions."""

import functools

from agents.environments import config, singles
from agents.environments.mujoco import backend, robot, task


def covers(environment: config.Environment) -> bool:
    """Return whether this backend runs exactly the described environment."""
    if environment.wrappers:  # Of single environments.
        return False
    if robot.is_robot(singles.function(environment.id)):
        return True
    known = task.covers(environment.id, environment.kwargs)
    return known and not environment.action_mask and _missing() is None


def create(
    environment: config.Environment, size: int, first_row: int, overlap: bool
) -> backend.Mujoco:
    """Create a batch of this number of rows.

    Raises:
      BackendError: if there is no such robot, or mjbatch is not installed.
    """
    if reason := _missing():
        raise config.BackendError(
            "Backend mujoco needs mjbatch and the version of MuJoCo that it is made "
            f"for ({reason}); install both by `pip install mjbatch`, or use backend "
            "workers."
        )
    threads, limit = environment.num_workers, environment.max_length
    args = _robot(environment), size, threads, limit, first_row, overlap
    return backend.Mujoco(*args)


def _robot(environment: config.Environment) -> robot.Robot:
    """Create the robot of a class, or the task of an id."""
    id, kwargs = environment.id, environment.kwargs
    if isinstance(id, str) and id in task.GYMNASIUM:
        return task.create(id, kwargs)
    function = singles.function(id)
    if robot.is_robot(function):
        return function(**kwargs)
    raise config.BackendError(
        f"{id!r} is not a robot, as backend mujoco needs; it has "
        f"{', '.join(task.GYMNASIUM)}, and classes of yours by module:Class. Use "
        "backend workers."
    )


@functools.cache
def _missing() -> str | None:
    """Return the reason why mjbatch cannot be imported; None if it can."""
    try:
        import mjbatch  # noqa: F401
    except ImportError as error:
        return str(error)
    return None
