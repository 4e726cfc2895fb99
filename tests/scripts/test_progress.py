"""What commands show on a terminal while TensorFlow is imported."""

import os
import pty
import subprocess
import sys

import pytest

from agents.scripts import cli

ARGUMENTS = {
    "benchmark": "simulate --config pendulum",
    "evaluate": "--logdir RUN",
    "export": "--logdir RUN --outdir OUT",
    "plot": "RUN --outfile OUT.png",
    "report": "RUN --outdir OUT",
    "train": "--config pendulum",
    "tune": "--config pendulum --space SPACE.yaml --trials 1",
    "visualize": "--logdir RUN --outdir OUT",
}
IMPORT = "import os; os.write(2, b'IMPORT'); os._exit(1)"


def shown(directory, name):
    """What a command shows on a terminal until it imports TensorFlow or Matplotlib.

    The imports end the process at once, and no thread has time to draw anything.
    """
    for package in ("tensorflow", "matplotlib"):
        (directory / f"{package}.py").write_text(IMPORT)
    ours, theirs = pty.openpty()
    path = os.pathsep.join([str(directory), *sys.path])
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-m", "agents.scripts.cli", name]
        process = subprocess.Popen(
            [*command, *ARGUMENTS[name].split()],
            cwd=directory,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": path, "TERM": "xterm"},
        )
        os.close(theirs)
        text = b""
        try:
            while part := terminal.read(1000):
                text += part
        except OSError:  # Linux says so at the end.
            pass
        process.wait()
    return text.decode()


def test_all_commands_are_tested():
    assert {*ARGUMENTS} == cli.SUBCOMMANDS.keys() - {"configs"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_something_is_shown_before_slow_imports(tmp_path, name):
    before = shown(tmp_path, name).partition("IMPORT")[0].partition("error:")[0]
    assert any(x in before for x in ("Starting TensorFlow", "Drawing", "Reading"))
