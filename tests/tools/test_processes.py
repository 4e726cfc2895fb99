"""Child processes: what they are told and say, how they fail and end."""

import os
import signal
import sys
import threading
import time

import cloudpickle
import psutil
import pytest

from agents.tools import channels, processes

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def start():
    """Function that starts a worker, which is closed at last."""
    found = []

    def function(target, *arguments, **kwargs):
        kwargs.setdefault("name", lambda: "Test")
        found.append(processes.Worker(target, *arguments, **kwargs))
        return found[-1]

    yield function
    processes.close(found)
    assert not psutil.Process().children()


def echo(channel, stack, *arguments):
    """Send all arguments back, then all messages."""
    channel.send(channels.RESULT, arguments)
    while True:
        kind, value = channel.receive()
        channel.send(kind, value)


def test_worker_gets_arguments_and_messages(start):
    worker = start(echo, 1, "two")
    assert worker.receive() == (channels.RESULT, (1, "two"))
    worker.send(channels.CALL, ("three",))
    assert worker.receive() == (channels.CALL, ("three",))
    assert worker.pid != os.getpid()


def test_worker_error_names_everything(start):
    def target(channel, stack):
        channel.receive()
        raise KeyError("from the child")

    worker = start(target)
    worker.send(channels.CALL, ("render",))
    with pytest.raises(processes.EnvProcessError) as caught:
        worker.receive()
    first, *rest = str(caught.value).splitlines()
    pid = worker.pid
    assert first == (
        f"Test: worker process {pid} raised KeyError: 'from the child' (exit code 1); "
        "last command: render."
    )
    assert rest[1].startswith("Traceback")
    assert rest[-1] == "KeyError: 'from the child'"


def test_worker_that_was_killed(start):
    worker = start(echo)
    worker.receive()
    os.kill(worker.pid, signal.SIGKILL)
    worker.send(channels.STEP)
    with pytest.raises(processes.EnvProcessError, match=r"SIGKILL.*command: step\.$"):
        worker.receive()


def test_cleanup_runs_after_the_report_and_may_fail(start, capfd):
    def target(channel, stack):
        stack.callback(lambda: 1 // 0)
        stack.callback(time.sleep, 0.5)
        raise KeyError("first")

    with pytest.raises(processes.EnvProcessError) as caught:
        start(target).receive()
    assert "KeyError: 'first'" in str(caught.value)
    assert "exit code 1" in str(caught.value)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_close_is_patient_but_not_forever(start, monkeypatch):
    def target(channel, stack, seconds):
        channel.send(channels.DONE)
        stack.callback(time.sleep, seconds)
        channel.receive()

    polite, *stubborn = (start(target, seconds) for seconds in (0.3, 1000, 1000))
    for worker in (polite, *stubborn):
        worker.receive()
    processes.close([polite], grace=1000)
    assert polite._process.returncode == 0
    deadlines, reap = [], processes.Worker.reap

    def spy(worker, deadline):
        deadlines.append(deadline)
        reap(worker, deadline)

    monkeypatch.setattr(processes.Worker, "reap", spy)
    begin = time.monotonic()
    processes.close(stubborn, grace=1)
    assert 0.9 < time.monotonic() - begin < 60
    assert deadlines[0] == deadlines[1]  # They share the grace.
    for worker in stubborn:
        assert worker._process.returncode == -signal.SIGKILL
    processes.close([polite, *stubborn])


def test_lingering_threads_do_not_keep_the_child(start):
    def target(channel, stack):
        threading.Thread(target=time.sleep, args=[1000]).start()

    worker = start(target)
    with pytest.raises(processes.EnvProcessError, match="exit code 0"):
        worker.receive()


def test_children_know_the_module_path_and_nothing_else(start, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, "/no/such/path"])

    def target(channel, stack):
        main = vars(sys.modules["__main__"])
        user = [name for name in main if not name.startswith("__")]
        channel.send(channels.RESULT, (sys.path, sys.argv, user))

    path, argv, user = start(target).receive()[1]
    assert path == sys.path
    assert argv == ["-c"]
    assert set(user) <= {"sys", "processes", "descriptor"}


def test_children_ignore_interrupts(start):
    worker = start(echo)
    os.kill(worker.pid, signal.SIGINT)
    worker.receive()
    os.kill(worker.pid, signal.SIGINT)
    worker.send(channels.STEP)
    assert worker.receive() == (channels.STEP, None)
