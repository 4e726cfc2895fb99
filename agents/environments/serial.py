"""Environments in the process of the caller, one after another."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from agents.tools import batch_env, checks, errors, limits, processes


class Serial(batch_env.BatchEnv):
    """Batch of environments in this process, for debugging and rendering.

    Their exceptions become the cause of an `EnvError`. Only `close` has a time limit.

    Args:
      constructors: Functions without arguments that create one environment each.
      first_row: Offset of the row numbers in errors.

    Raises:
      errors.Mistake: from a constructor.
      processes.EnvError: if an environment cannot be created for another reason.
    """

    def __init__(self, constructors: Sequence[Callable[[], Any]], first_row: int = 0):
        envs = []
        try:
            with contextlib.chdir(os.getcwd()):  # Constructors may leave it.
                for constructor in constructors:
                    envs.append(constructor())
        except (Exception, SystemExit) as error:
            limits.close([env.close for env in envs])
            if isinstance(error, errors.Mistake):
                raise
            place = f"Environment row {first_row + len(envs)}"
            raise processes.failure(place, "start", error) from error
        checks.require_apart(envs, first_row)
        super().__init__(envs, True, first_row)

    def _fail(self, place: str, command: str, error: Exception) -> NoReturn:
        raise processes.failure(place, command, error) from error
