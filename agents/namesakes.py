"""Warning about other packages of the same name."""

import glob
import multiprocessing
import os
import sys
import warnings

DISTRIBUTIONS = ("agents", "openai_agents")
"""Distributions that install another top-level package `agents`, as directories spell
them."""


def warn(directory: str) -> None:
    """Warn in one line if Python can find another package of this name.

    The order of `sys.path` decides which one is imported; if both are installed into
    one directory, their files are mixed. Worker processes do not warn.

    Args:
      directory: Directory of the package that is being imported.
    """
    if multiprocessing.current_process().name != "MainProcess":
        return  # `parent_process()` is not set yet when objects are unpickled.
    other = _elsewhere(directory) or _beside(directory)
    if other is not None:
        name = os.path.basename(directory)
        warnings.warn(
            f"{other} is another package that is imported as {name!r}; install only one "
            f"of them per virtual environment. The one in use is {directory}.",
            stacklevel=3,
        )


def _elsewhere(directory: str) -> str | None:
    """Return the directory of another package of this name on `sys.path`."""
    for path in sys.path:
        found = os.path.join(path, os.path.basename(directory))
        package = os.path.isfile(os.path.join(found, "__init__.py"))
        if package and not os.path.samefile(found, directory):
            return os.path.abspath(found)
    return None


def _beside(directory: str) -> str | None:
    """Return the metadata of a distribution whose files are mixed with ours."""
    parent = os.path.dirname(directory)
    for name in DISTRIBUTIONS:
        for found in glob.glob(
            os.path.join(glob.escape(parent), f"{name}-*.dist-info")
        ):
            return found
    return None
