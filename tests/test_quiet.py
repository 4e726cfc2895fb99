"""Start of TensorFlow in programs of users."""

import os
import subprocess
import sys

import pytest

AGENT = "import agents; agents.Agent"
ALGORITHM = "from agents.algorithms import ppo; import tensorflow as tf; tf.constant(1)"
LIST = "import agents, tensorflow as tf; tf.config.list_physical_devices()"
RESOURCES = (
    "import agents, tensorflow as tf, importlib.resources as r;"
    "assert r.files(tf).joinpath('__init__.py').is_file();"
    "assert type(tf.__loader__) is type(agents.__loader__) is type(tf.__spec__.loader)"
)


def errors_of(program, **environment):
    """Return the exit code and the error stream of a program."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **environment},
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", [f"{AGENT};{LIST}", f"{ALGORITHM};{RESOURCES}"])
def test_tensorflow_says_nothing(program):
    assert errors_of(program) == (0, "")


def test_atari_says_nothing():
    program = (
        "from agents.environments import Environment, make;"
        "make.describe(Environment('ALE/Pong-v5', 'serial'))"
    )
    assert errors_of(program) == (0, "")


def test_whoever_sets_the_level_gets_it():
    program = "import agents, sys; print(len(sys.meta_path), file=sys.stderr)"
    ours, theirs = (
        int(errors_of(program, **level)[1])
        for level in ({}, {"TF_CPP_MIN_LOG_LEVEL": "0"})
    )
    assert ours == theirs + 1


@pytest.mark.slow
def test_processes_of_programs_say_nothing_either():
    program = f"import agents, subprocess, sys; subprocess.run([sys.executable, '-c', {LIST!r}])"
    assert errors_of(program) == (0, "")


def test_errors_of_the_import_are_raised(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('it is broken')")
    code, errors = errors_of("import agents; agents.Agent", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert errors.endswith("ImportError: it is broken\n")


def test_missing_error_streams_do_no_harm():
    program = "import sys; sys.stderr = None; import agents; agents.Agent"
    code, _ = errors_of(program)
    assert code == 0


def test_closed_error_streams_do_no_harm():
    program = "import os; os.close(2); import agents, tensorflow as tf; tf.constant(1)"
    assert errors_of(program) == (0, "")
