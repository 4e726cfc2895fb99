"""The channel between processes, and the processes at its ends."""

import os
import signal
import socket
import sys
import threading
import time

import cloudpickle
import numpy as np
import psutil
import pytest

from agents.tools import processes

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def channels():
    """Both ends of a connection in this process."""
    found = [processes.Channel(end) for end in socket.socketpair()]
    yield found
    for channel in found:
        channel.close()


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


def test_messages_arrive_in_order(channels):
    ours, theirs = channels
    ours.send(processes.STEP)
    ours.send(processes.CALL, {"x": np.arange(3), "f": lambda: 5})
    ours.send(processes.RESET)
    assert theirs.receive() == (processes.STEP, None)
    kind, value = theirs.receive()
    assert kind == processes.CALL
    assert value["f"]() == 5
    np.testing.assert_array_equal(value["x"], [0, 1, 2])
    assert theirs.receive() == (processes.RESET, None)


def test_end_of_the_other_side_is_seen(channels):
    ours, theirs = channels
    theirs.send(processes.RESULT, "last words")
    theirs.close()
    with pytest.raises(processes.Disconnected):
        ours.send(processes.STEP)
    assert ours.receive() == (processes.RESULT, "last words")
    with pytest.raises(processes.Disconnected):
        ours.receive()


@pytest.mark.parametrize("seconds", [0.2, 1.3])
def test_waiting_has_a_limit(channels, seconds):
    ours, _ = channels
    ours.set_timeout(seconds)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive()
    assert seconds - 0.05 < time.monotonic() - start < 60
    with pytest.raises(TimeoutError):
        ours.send(processes.RESULT, bytes(10_000_000))


def test_nothing_is_sent_of_what_cannot_be_pickled(channels):
    ours, theirs = channels
    with pytest.raises(TypeError, match="pickle"):
        ours.send(processes.RESULT, threading.Lock())
    ours.send(processes.DONE)
    assert theirs.receive() == (processes.DONE, None)


def test_large_messages_are_complete(channels):
    ours, theirs = channels
    data = np.random.default_rng(0).integers(0, 255, 3_000_000, np.uint8)
    thread = threading.Thread(target=ours.send, args=(processes.RESULT, data))
    thread.start()
    np.testing.assert_array_equal(theirs.receive()[1], data)
    thread.join()


def echo(channel, stack, *arguments):
    """Send all arguments back, then all messages."""
    channel.send(processes.RESULT, arguments)
    while True:
        kind, value = channel.receive()
        channel.send(kind, value)


def test_worker_gets_arguments_and_messages(start):
    worker = start(echo, 1, "two")
    assert worker.receive() == (processes.RESULT, (1, "two"))
    worker.send(processes.CALL, ("three",))
    assert worker.receive() == (processes.CALL, ("three",))
    assert worker.pid != os.getpid()


def test_worker_error_names_everything(start):
    def target(channel, stack):
        channel.receive()
        raise KeyError("from the child")

    worker = start(target)
    worker.send(processes.CALL, ("render",))
    with pytest.raises(processes.EnvProcessError) as caught:
        worker.receive()
    first, *rest = str(caught.value).splitlines()
    pid = worker.pid
    assert first == (
        f"Test: worker process {pid} raised (exit code 1); last command: render."
    )
    assert rest[1].startswith("Traceback")
    assert rest[-1] == "KeyError: 'from the child'"


def test_worker_that_was_killed(start):
    worker = start(echo)
    worker.receive()
    os.kill(worker.pid, signal.SIGKILL)
    worker.send(processes.STEP)
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
        channel.send(processes.DONE)
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
        channel.send(processes.RESULT, (sys.path, sys.argv, user))

    path, argv, user = start(target).receive()[1]
    assert path == sys.path
    assert argv == ["-c"]
    assert set(user) <= {"sys", "processes", "descriptor"}


def test_children_ignore_interrupts(start):
    worker = start(echo)
    os.kill(worker.pid, signal.SIGINT)
    worker.receive()
    os.kill(worker.pid, signal.SIGINT)
    worker.send(processes.STEP)
    assert worker.receive() == (processes.STEP, None)
