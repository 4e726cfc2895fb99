"""Runs: environments and algorithms of configs, and run directories."""

import contextlib
import dataclasses
import datetime
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gymnasium

from agents.environments import config as environments_
from agents.environments import make
from agents.experiments import config as experiment
from agents.experiments import named
from agents.tools import config as config_
from agents.tools import errors, files, spaces

if TYPE_CHECKING:  # They import TensorFlow.
    from agents.tools import algorithm as algorithm_
    from agents.tools import steps

LAG_AGENTS = 32
"""Number of agents from which steps in two halves are the default in worker processes;
below it, twice as many calls in the graph cost more than waiting."""


class RunError(errors.Mistake):
    """Problem with a run directory or an environment, in one line."""


def describe(config: experiment.Config) -> make.Description:
    """Return spaces and limit of a config's environment; check them.

    Only backend vector starts a process.

    Raises:
      RunError: if episodes have no limit, and the algorithm remembers whole ones.
      UnsupportedSpaceError: for unsupported spaces.
    """
    environment = config.environment
    with warnings.catch_warnings(action="ignore"):  # They appear again in use.
        description = make.describe(environment)
    _require_arrays(description.observation_space)
    whole = getattr(config.algorithm, "whole_episodes", False)
    if whole and description.max_length is None:
        raise RunError(
            f"environment {environment.id!r} has no limit of episode length, which "
            f"{config.algorithm.type} needs to remember whole episodes; set "
            "environment.max_length, or algorithm.memory=unrolls."
        )
    return description


def sees_images(description: make.Description) -> bool:
    """Return whether observations contain images, see `tools.images`."""
    from agents.tools import images

    leaves = spaces.flatten(description.observation_space)
    return any(map(images.recognized, leaves))


def _require_arrays(space: gymnasium.Space) -> None:
    """Raise UnsupportedSpaceError unless observations are arrays.

    The text says how to leave out the parts of a Dict that are not.
    """
    try:
        spaces.spec(space)
    except spaces.UnsupportedSpaceError as error:
        parts = space if isinstance(space, gymnasium.spaces.Dict) else {}
        keys = ", ".join(key for key in sorted(parts) if _is_array(parts[key]))
        if not keys:
            raise
        kind = "gymnasium.wrappers:FilterObservation"
        wrappers = f"[{{type: {kind}, filter_keys: [{keys}]}}]"
        text = f"{str(error)[:-1]}: --set 'environment.wrappers={wrappers}'"
        raise spaces.UnsupportedSpaceError(text) from None


def _is_array(space: gymnasium.Space) -> bool:
    """Return whether observations of a space are arrays, or structures of them."""
    with contextlib.suppress(spaces.UnsupportedSpaceError):
        spaces.spec(space)
        return True
    return False


def require_devices(config: experiment.Config) -> None:
    """Raise ConfigError unless a config can be trained on its devices."""
    if config.devices == experiment.Devices():
        return
    environment = config.environment
    if make.choose(environment) == "compiled":
        raise config_.ConfigError(
            "config section 'devices' must be left out for compiled environments, which "
            "are one program with the algorithm, on one device."
        )
    config.devices.require()


def environments(config: experiment.Config, **changes: Any) -> "steps.Environments":
    """Create the environments of a config in the graph, with changed keys.

    Raises:
      BackendError: if the backend cannot run the environment.
    """
    environment = dataclasses.replace(config.environment, **changes)
    return make.in_graph(environment, in_halves(environment))


VECTORIZED = ("compiled", "envpool", "vector")
"""Backends of environments of which there may be no single ones."""


def in_process(config: experiment.Config, on_ray: bool = False) -> experiment.Config:
    """Return a config with the same numbers whose environments step in this process.

    Those that are vectorized by their own code stay where they are. On Ray, that is the
    process of each worker, where no halves take turns.
    """
    environment = config.environment
    if make.choose(environment) in VECTORIZED:
        return config
    environment = dataclasses.replace(
        environment,
        backend="serial",
        num_workers=None,
        # For equal numbers.
        action_lag=environment.action_lag if on_ray else in_halves(environment),
    )
    return dataclasses.replace(config, environment=environment)


def in_halves(environment: environments_.Environment) -> bool:
    """Return whether the batch steps in two halves."""
    if environment.num_agents % 2:
        return False
    if environment.action_lag is not None:
        return environment.action_lag
    backend = make.choose(environment)
    return backend == "workers" and environment.num_agents >= LAG_AGENTS


def algorithm(
    config: experiment.Config,
    description: make.Description,
    num_agents: int | None = None,
) -> "algorithm_.Algorithm":
    """Create the algorithm of a config, with fresh variables.

    By default it has all agents and is placed on the config's devices, for training.

    Raises:
      Mistake: if it cannot be created with this config, or for these spaces.
    """
    import tensorflow as tf

    try:
        if num_agents is None:
            return config.create_learner(description)
        return config.create_algorithm(description, num_agents)
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        shape = re.search(r"shape\[[\d,]*\]", str(error))
        array = f", for an array of {shape[0]}" if shape else ""
        raise RunError(
            f"the algorithm needs more memory than there is{array}; make it smaller."
        ) from error


def directory(
    parent: str | pathlib.Path, name: str, timestamp: str | None = None
) -> pathlib.Path:
    """Return the run directory `TIMESTAMP-NAME`; without a timestamp, create a new one.

    That is named by the current second or, if it is taken, by the next free one.

    Raises:
      RunError: if nothing can be created there.
    """
    if timestamp is not None:
        return pathlib.Path(parent) / f"{timestamp}-{name}"
    make_writable(parent)
    moment = datetime.datetime.now()
    while True:
        path = pathlib.Path(parent) / f"{moment:%Y%m%dT%H%M%S}-{name}"
        try:
            path.mkdir()
        except FileExistsError:  # Another run began at the same time.
            moment += datetime.timedelta(seconds=1)
        else:
            return path


def make_writable(directory: str | pathlib.Path) -> None:
    """Create a directory, or check that it is writable."""
    try:
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise RunError(f"cannot write to {directory}: {error}.") from error


@contextlib.contextmanager
def alone(directory: str | pathlib.Path, option: str) -> Iterator[None]:
    """Lock a writable directory against other processes.

    Args:
      directory: Directory of a run or study.
      option: Command-line option that chooses another one.

    Raises:
      RunError: if another process works there.
    """
    make_writable(directory)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.alone(directory))
        except files.InUseError as error:
            raise RunError(f"{error}; wait for it, or use another {option}.") from error
        except OSError as error:
            raise RunError(f"cannot lock {directory}: {error}.") from error
        yield


def read_config(logdir: str | pathlib.Path) -> experiment.Config:
    """Read the config of a run, without its devices.

    Raises:
      RunError: if the directory holds no run.
      ConfigError: if its config is wrong.
    """
    path = pathlib.Path(logdir) / "config.yaml"
    if not path.exists():
        raise RunError(files.absence(logdir, path.name))
    config = named.load(str(path))
    return dataclasses.replace(config, devices=experiment.Devices())


def policy(
    logdir: str | pathlib.Path,
    config: experiment.Config,
    description: make.Description,
    num_agents: int,
    name: str | None = None,
) -> "tuple[algorithm_.Algorithm, dict]":
    """Load the policy of a run; return the algorithm and the saved state.

    Its replay memory has the smallest allowed size, and is not read.
    """
    config = config.without_memory(num_agents)
    agent = algorithm(config, description, num_agents)
    return agent, restore(logdir, agent, name, memory=False)


def restore(
    logdir: str | pathlib.Path,
    agent: "algorithm_.Algorithm",
    name: str | None = None,
    memory: bool = True,
) -> dict:
    """Load a checkpoint of a run into its algorithm; return the saved state."""
    import tensorflow as tf

    from agents.tools import checkpoint

    checkpoints = checkpoint.Checkpoints(pathlib.Path(logdir) / "checkpoints")
    try:
        return checkpoints.restore(agent.persistent(), name, memory)
    except checkpoint.CheckpointError:
        tf.get_logger().setLevel("ERROR")  # Else it lists all unused variables.
        raise
