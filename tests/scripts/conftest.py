"""Runs of the scripts, in processes of their own and in the one of the tests."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest

HERE = pathlib.Path(__file__).parent


class Script:
    """A running script, in a process group of its own as in a terminal."""

    def __init__(self, name, *arguments):
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"agents.scripts.{name}", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def wait(self, timeout=300):
        """Wait for the end; return exit code, output and errors."""
        output, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, output, errors

    def workers(self):
        """Processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number):
        """Send a signal to the group, as Ctrl-C does."""
        os.killpg(self.process.pid, number)

    def wait_for(self, condition, timeout=300):
        """Wait until something is the case while the script runs."""
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"The script has ended: {self.wait()}.")
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.01)


class Gate:
    """Where runs in certain environments stand still.

    So they are met at a certain place however slow the machine is.
    """

    def __init__(self, path):
        self._path = path

    def settings(self, id):
        """Options of scripts for environments of this kind, of which none is hung."""
        kwargs = f"{{id: {id}, gate: {self._path}}}"
        name = "environments_for_tests:gated"
        values = (f"environment.id={name}", f"environment.kwargs={kwargs}")
        values = (*values, "environment.timeout=600")
        return [x for value in values for x in ("--set", value)]

    def close(self, run, reports, steps=0):
        """Let a run do so many steps after this number of reports, and no more."""
        path = self._path.with_suffix(".new")
        path.write_text(f"{run / 'metrics.jsonl'}\n{reports}\n{steps}\n")
        path.rename(self._path)

    def open(self):
        """Let it go on."""
        self._path.unlink()


@pytest.fixture
def gate(tmp_path):
    """Open gate for runs of this test."""
    return Gate(tmp_path / "gate")


@pytest.fixture
def start():
    """Start a script by name and arguments; it is killed when the test is over."""
    running = []

    def function(name, *arguments):
        running.append(Script(name, *arguments))
        return running[-1]

    yield function
    for script in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.process.pid, 9)
        script.process.communicate()


@pytest.fixture
def run(start):
    """Run a script to its end; returns exit code, output and errors."""
    return lambda *arguments: start(*arguments).wait()


@pytest.fixture
def call(monkeypatch, capsys):
    """Call `main` of a script here, which is quick; returns the same.

    TensorFlow stays as it is, because other tests use it, too.
    """
    from agents.scripts import commands

    monkeypatch.setattr(commands, "start_tensorflow", lambda debug=False: None)
    monkeypatch.setattr(commands, "use_threads", lambda config: None)
    monkeypatch.syspath_prepend(str(HERE))

    def function(script, *arguments):
        capsys.readouterr()
        code = script.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return function


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Make a run by what differs from a config, with new weights."""
    monkeypatch.syspath_prepend(str(HERE))

    def function(*overrides, name="debug"):
        from agents.experiments import named, runs, training
        from agents.tools import checkpoint

        config = named.load(name, overrides)
        agent = runs.algorithm(config, runs.describe(config))
        training.prepare(tmp_path / "fresh", config)
        checkpoints = checkpoint.Checkpoints(tmp_path / "fresh" / "checkpoints")
        checkpoints.save(0, agent.persistent(), {"step": 0, "phase": 0})
        return tmp_path / "fresh"

    return function


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Finished run of the config `debug` with what it printed.

    The processes of the tests share it: the first one that wants it trains.
    """
    logdir = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        logdir = logdir.parent
    logdir = logdir / "trained"
    logdir.mkdir(exist_ok=True)
    printed = logdir / "printed.json"
    with (logdir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            where = ("--logdir", logdir, "--timestamp", 1)
            code, *texts = Script("train", "--config", "debug", *where).wait()
            assert code == 0, texts[1]
            printed.write_text(json.dumps(texts))
    output, errors = json.loads(printed.read_text())
    return logdir / "1-debug", output, errors
