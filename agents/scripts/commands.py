"""Shared parts of commands: error reports, parsers, and the start of TensorFlow."""

import argparse
import contextlib
import functools
import gc
import importlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from agents.experiments import compilation
from agents.experiments import config as experiment
from agents.tools import bounds, errors, files


def reporting(main: Callable) -> Callable:
    """Turn expected errors of a command into one line on stderr and an exit code.

    User mistakes give 2, failures of the run 1, Ctrl-C 130, and a closed pipe 141.
    The traceback of the user's own code follows if that code failed.
    """

    @functools.wraps(main)
    def wrapper(argv=None) -> int:
        try:
            code = main(argv)
            if sys.stdout:  # Nothing if it was closed.
                sys.stdout.flush()
            return code
        except errors.Mistake as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except errors.Failure as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except BrokenPipeError:  # By `| head`, which has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except OSError as error:
            full = error.errno in files.NO_ROOM
            if error.filename is None and not full:  # No file of the user.
                raise
            place = (
                "write" if error.filename is None else f"use {str(error.filename)!r}"
            )
            text = f"cannot {place}: {error.strerror}."
            print(f"error: {errors.line(text)}", file=sys.stderr)
            return 1 if full else 2
        except KeyboardInterrupt:
            return 130

    return wrapper


class Parser(argparse.ArgumentParser):
    """Command line whose mistakes become one line, with exit code 2."""

    def __init__(self, name: str, **options: Any) -> None:
        """Create the command line of `agents NAME`; options are those of argparse."""
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
    """Create an argument type for integers within bounds."""

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
    """Create the command line of a command that uses a trained policy."""
    parser = Parser(name, description=description)
    parser.add_argument("--logdir", required=True, metavar="RUN", help="run directory")
    parser.add_argument(
        "--checkpoint",
        metavar="NAME",
        help="name in RUN/checkpoints, such as best (default: newest)",
    )
    return parser


def episodes_parser(name: str, description: str | None, num_episodes: int) -> Parser:
    """Create the command line of a command that runs episodes of a trained policy."""
    parser = policy_parser(name, description)
    parser.add_argument("--num_episodes", type=COUNT, default=num_episodes, metavar="N")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions from the policy"
    )
    parser.add_argument(
        "--seed", type=SEED, default=0, help="of the environments and samples"
    )
    return parser


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the option `--set`, for `named.load`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=value",
        help="override a value of the config",
    )


def program(name: str) -> str:
    """Return a command for a program of this installation, valid in this directory."""
    if shutil.which(name):
        return name
    folder = pathlib.Path(os.path.relpath(sys.prefix)) / "bin"
    return shlex.quote(str(folder / name))


@contextlib.contextmanager
def status(text: str) -> Iterator[Callable[[str], Any]]:
    """Show on terminals what a command does; the yielded function changes the text.

    Each text is drawn at once: Rich's thread has to wait while TensorFlow is imported.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import console

    with console.Console(stderr=True).status(text) as shown:
        draw = functools.partial(shown.update, spinner="dots")  # New ones are drawn.
        draw(text)
        yield draw


def start_tensorflow(debug: bool = False) -> None:
    """Import and configure TensorFlow.

    Kernels are deterministic, and GPU memory is allocated on demand. For debugging,
    functions run eagerly on one thread.
    """
    experiment.require_keras()
    compilation.keep()
    if "tensorflow" not in sys.modules:
        _import_without_collecting()
    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    tf.config.experimental.enable_op_determinism()
    tf.config.run_functions_eagerly(debug)
    _set_threads("one" if debug else "within")


def _import_without_collecting() -> None:
    """Import TensorFlow, whose modules are never searched for garbage.

    The searches would prolong every start by about a second.
    """
    gc.disable()
    try:
        importlib.import_module("tensorflow")
    finally:
        gc.enable()
    gc.freeze()


def use_threads(config: experiment.Config) -> None:
    """Use the cores as a config's algorithm needs; call this before any operation."""
    replicated = config.devices.replicas > 1
    threads = getattr(config.algorithm, "threads", "within")
    _set_threads("beside" if replicated else threads)


ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
"""Environment variable of TensorFlow that chooses its kernels."""


def use_kernels(images: bool) -> None:
    """Start this command again, with the kernels of oneDNN, if policies see images.

    They compute convolutions faster than TensorFlow's own, but small dense layers
    slower. TensorFlow chooses kernels as it is imported, which reading a config
    requires, so the process replaces itself. It does not in programs that only call the
    command, or if the environment variable is set.
    """
    if images and ONEDNN not in os.environ and _is_command():
        os.environ[ONEDNN] = "1"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _is_command() -> bool:
    """Return whether this process runs a command, rather than a program around it."""
    module = sys.modules["__main__"].__spec__
    if module is None:
        return pathlib.Path(sys.argv[0]).name == "agents"
    return module.name.startswith("agents.scripts.")


def _set_threads(kind: str) -> None:
    """Choose how operations use the cores.

    Threads that wait for work slow the environments down, and waking them costs more
    than most operations. So only the necessary parallelism is used.

    Args:
      kind: `one`: one thread; `within`: one operation after another, each on all cores
        if it is large; `beside`: as many operations at a time as there are cores, each
        on one thread.
    """
    import tensorflow as tf

    inside, beside = {"one": (1, 1), "within": (0, 1), "beside": (1, 0)}[kind]
    tf.config.threading.set_intra_op_parallelism_threads(inside)
    tf.config.threading.set_inter_op_parallelism_threads(beside)
