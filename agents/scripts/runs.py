"""Runs: how a config becomes environments and an algorithm, and what lies on disk."""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from agents.distributed import cluster
from agents.environments import make
from agents.scripts import configs, experiment
from agents.tools import batch_env, bounds, calls, errors, files, processes, spaces
from agents.tools import config as config_

if os.environ.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
    sys.exit("error: agents needs Keras 3; unset TF_USE_LEGACY_KERAS.")


LAG_AGENTS = 32
"""Agents from which on steps in two halves are faster by default, in worker processes;
with fewer, what the graph does twice as often costs more than waiting."""


class RunError(errors.Mistake):
    """Something wrong with a run directory or an environment, in one line."""


def reporting(main: Callable) -> Callable:
    """Turn expected errors of a script into one line on stderr and an exit code.

    Mistakes of the user give 2, failures of a running environment or algorithm 1, and
    Ctrl-C 130. The traceback of the user's own code, if that has failed, is below.
    """

    @functools.wraps(main)
    def wrapper(argv=None) -> int:
        try:
            return main(argv)
        except errors.Mistake as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            full = error.errno in files.NO_ROOM
            if error.filename is None and not full:  # Nothing that the user named.
                raise
            text = f"cannot use {str(error.filename)!r}: {error.strerror}."
            print(f"error: {errors.line(text)}", file=sys.stderr)
            return 1 if full else 2
        except (
            processes.EnvError,
            batch_env.EnvDataError,
            FloatingPointError,
            calls.AlgorithmError,
            cluster.WorkerError,
            files.WriteError,
        ) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130

    return wrapper


class Parser(argparse.ArgumentParser):
    """Command line whose mistakes are one line, with exit code 2."""

    def __init__(self, name: str, **options: Any) -> None:
        """Command line of `agents NAME`; options are those of argparse."""
        super().__init__(prog=f"agents {name}", **options)

    def parse_known_args(self, args=None, namespace=None):
        for text in sys.argv[1:] if args is None else args:
            if wrong := errors.control(text):
                self.error(f"the argument {text!r} has the character {ascii(wrong)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        """Raise a Mistake."""
        message = re.sub(r"^argument (\S+): must", r"\1 must", message)
        raise errors.Mistake(f"{message}; see `{self.prog} --help`.")


def integer(allowed: bounds.Bounds) -> Callable[[str], int]:
    """Type of arguments that are integers within bounds."""

    def convert(text: str) -> int:
        try:
            value = int(text[:100])
        except ValueError:
            demand = f"must be an integer, got {text!r}"
        else:
            demand = allowed.refuse(value)
        if demand:
            raise argparse.ArgumentTypeError(demand.rstrip("."))
        return value

    return convert


COUNT, SEED = integer(bounds.COUNT), integer(bounds.SEED)
"""Types of arguments."""


def policy_parser(name: str, description: str | None) -> Parser:
    """Command line of a script that uses a trained policy."""
    parser = Parser(name, description=description)
    parser.add_argument("--logdir", required=True, metavar="RUN", help="run directory")
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="name in RUN/checkpoints (default: newest)"
    )
    return parser


def episodes_parser(name: str, description: str | None, num_episodes: int) -> Parser:
    """Command line of a script that runs episodes of a trained policy."""
    parser = policy_parser(name, description)
    parser.add_argument("--num_episodes", type=COUNT, default=num_episodes, metavar="N")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions from the policy"
    )
    parser.add_argument(
        "--seed", type=SEED, default=0, help="of the environments and samples"
    )
    return parser


def start_tensorflow(debug: bool = False) -> None:
    """Import TensorFlow without its start-up messages and configure it.

    Kernels are deterministic, GPU memory is taken as needed. For debugging, functions
    run eagerly on one thread.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _silent_stderr():
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
        tf.config.experimental.enable_op_determinism()
        tf.config.run_functions_eagerly(debug)
        _set_threads("one" if debug else "within")


def use_threads(config: experiment.Config) -> None:
    """Use the cores as a config's algorithm does best, if no operation has run yet."""
    replicated = config.devices.replicas > 1
    threads = getattr(config.algorithm, "threads", "within")
    _set_threads("beside" if replicated else threads)


def _set_threads(kind: str) -> None:
    """Choose how operations use the cores.

    Threads that wait for work do so at the expense of the environments, and waking them
    costs more than most operations take. So nothing is parallel that need not be.

    Args:
      kind: `one`: one thread; `within`: one operation after the other, each on all
        cores if it is large; `beside`: as many operations at a time as there are cores,
        each on one thread.
    """
    import tensorflow as tf

    inside, beside = {"one": (1, 1), "within": (0, 1), "beside": (1, 0)}[kind]
    tf.config.threading.set_intra_op_parallelism_threads(inside)
    tf.config.threading.set_inter_op_parallelism_threads(beside)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep what libraries print to the error stream of the process away."""
    sys.stderr.flush()
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def describe(config: experiment.Config) -> make.Description:
    """Spaces and episode limit of a config's environment, checked for its algorithm.

    No process is started but by backend vector.

    Raises:
      RunError: if episodes have no limit.
      UnsupportedSpaceError: for spaces that the algorithm cannot handle.
    """
    environment = config.environment
    with warnings.catch_warnings(action="ignore"):  # They come again where it is used.
        description = environment.describe()
    spaces.spec(description.observation_space)
    if description.max_length is None:
        raise RunError(
            f"environment {environment.id!r} has no limit of episode length; "
            "set environment.max_length."
        )
    return description


def require_devices(config: experiment.Config) -> None:
    """Raise ConfigError unless a config can be trained on the devices it names."""
    if config.devices == experiment.Devices():
        return
    environment = config.environment
    if make.choose(environment.id, environment.backend) == "compiled":
        raise config_.ConfigError(
            "config section 'devices' must be left out for compiled environments, which "
            "are one program with the algorithm, on one device."
        )
    config.devices.require()


def environments(config: experiment.Config, **changes: Any) -> Any:
    """Batch of the config's environments in the graph; changes as in its section.

    Raises:
      make.BackendError: if the backend cannot run the environment.
    """
    environment = dataclasses.replace(config.environment, **changes)
    return environment.create(in_halves(environment))


def in_halves(environment: experiment.Environment) -> bool:
    """Whether the batch steps in two halves."""
    if environment.num_agents % 2:
        return False
    if environment.action_lag is not None:
        return environment.action_lag
    backend = make.choose(environment.id, environment.backend)
    return backend == "workers" and environment.num_agents >= LAG_AGENTS


def algorithm(
    config: experiment.Config,
    description: make.Description,
    num_agents: int | None = None,
) -> Any:
    """Algorithm of a config, with fresh variables.

    Unless it is for another number of agents, it can train on the config's devices.

    Raises:
      RunError: if the algorithm cannot be made with this config.
      UnsupportedSpaceError: for spaces that the algorithm cannot handle.
    """
    import tensorflow as tf

    try:
        if num_agents is None:
            return config.create_learner(description)
        return config.create_algorithm(description, num_agents)
    except errors.Mistake:
        raise
    except ValueError as error:
        raise RunError(str(error)) from error
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        shape = re.search(r"shape\[[\d,]*\]", str(error))
        array = f", for an array of {shape[0]}" if shape else ""
        raise RunError(
            f"the algorithm needs more memory than there is{array}; make it smaller."
        ) from error


def make_writable(directory: str | pathlib.Path) -> None:
    """Create a directory, or make sure that files can be made in it."""
    try:
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise RunError(f"cannot write to {directory}: {error}.") from error


@contextlib.contextmanager
def alone(directory: str | pathlib.Path, option: str) -> Iterator[None]:
    """Keep other processes away from a directory that can be written.

    Args:
      directory: Of a run or study.
      option: That chooses another one.

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
    """Config that a run was started with, but for its devices."""
    path = pathlib.Path(logdir) / "config.yaml"
    if not path.exists():
        raise RunError(f"{logdir} is not a run directory, it has no config.yaml.")
    config = configs.load(str(path))
    return dataclasses.replace(config, devices=experiment.Devices())


def policy(
    logdir: str | pathlib.Path,
    config: experiment.Config,
    description: make.Description,
    num_agents: int,
    name: str | None = None,
) -> tuple[Any, dict]:
    """Algorithm that acts as a run has learned to, and the saved state.

    Of a replay memory it has the least that is legal, and reads nothing.
    """
    config = config.without_memory(num_agents)
    agent = algorithm(config, description, num_agents)
    return agent, restore(logdir, agent, name, memory=False)


def restore(
    logdir: str | pathlib.Path,
    agent: Any,
    name: str | None = None,
    memory: bool = True,
) -> dict:
    """Load a checkpoint of a run into its algorithm; returns the saved state."""
    import tensorflow as tf

    from agents.tools import checkpoint

    checkpoints = checkpoint.Checkpoints(pathlib.Path(logdir) / "checkpoints")
    try:
        return checkpoints.restore(agent.persistent(), name, memory)
    except checkpoint.CheckpointError as error:
        tf.get_logger().setLevel("ERROR")  # Or it lists all that was not restored.
        raise RunError(str(error)) from error
