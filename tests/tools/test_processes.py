"""Child processes: their messages, failures and ends."""

import os
import signal
import subprocess
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


SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


def own_process(channel, stack):
    """Start a program, say its id, and wait."""
    channel.send(channels.RESULT, subprocess.Popen(SLEEP).pid)
    channel.receive()


def gone(pid):
    """Whether a process ends within some seconds."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return True
    return not psutil.wait_procs([process], timeout=10)[1]


@pytest.mark.parametrize("kill", [False, True])
def test_what_a_child_has_started_ends_with_it(start, kill):
    worker = start(own_process)
    _, pid = worker.receive()
    if kill:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(processes.EnvProcessError, match="SIGKILL"):
            worker.receive()
    processes.close([worker])
    assert gone(pid)


def test_what_a_child_has_started_ends_with_a_parent_that_is_killed():
    code = """
from agents.tools import processes
import os, subprocess, sys, time

def own(channel, stack):
    pid = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid
    print(os.getpid(), pid, flush=True)
    time.sleep(1000)

worker = processes.Worker(own, name=lambda: "Test")
worker.receive()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with parent:
        pids = [int(x) for x in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_child_that_hangs_tells_where(start):
    def target(channel, stack):
        def the_place():
            time.sleep(1000)

        channel.send(channels.DONE)
        the_place()

    worker = start(target)
    worker.receive()
    worker.set_timeout(0.2)
    with pytest.raises(processes.EnvProcessError) as caught:
        worker.receive()
    first, _, *rest = str(caught.value).splitlines()
    assert first == (
        f"Test: worker process {worker.pid} did not answer within 0.2 s (still running, "
        "so it was killed); last command: start."
    )
    assert any(line.endswith("in the_place") for line in rest)


def test_a_child_may_know_why_it_hangs(start):
    def target(channel, stack):
        channel.send(channels.DONE)
        try:
            time.sleep(1000)
        except processes.Interrupted:
            raise processes.EnvError("its own child ended") from None

    worker = start(target)
    worker.receive()
    worker.set_timeout(0.2)
    with pytest.raises(processes.EnvError, match="^its own child ended$"):
        worker.receive()


def test_a_child_that_hears_nothing_is_killed(start):
    def target(channel, stack):
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        channel.send(channels.DONE)
        time.sleep(1000)

    worker = start(target)
    worker.receive()
    worker.set_timeout(0.2)
    with pytest.raises(processes.EnvProcessError, match="killed.*start.$"):
        worker.receive()
    assert worker._process.returncode == -signal.SIGKILL


def test_the_end_of_a_child_is_seen_while_its_copy_lives(start):
    def target(channel, stack):
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1000)

    worker = start(target, timeout=60)
    begin = time.monotonic()
    with pytest.raises(processes.EnvProcessError, match="ended .killed by SIGKILL"):
        worker.receive()
    assert time.monotonic() - begin < 10


class Trap:
    """Raises where it is unpickled."""

    def __reduce__(self):
        return exec, ("raise KeyError('trap')",)


def test_what_cannot_be_unpickled_is_an_error(start):
    def target(channel, stack):
        channel.send(channels.RESULT, Trap())
        channel.receive()

    with pytest.raises(processes.EnvProcessError, match="unpickled, KeyError: 'trap'"):
        start(target).receive()


def test_many_that_hang_while_closing_end_at_once(start):
    def target(channel, stack):
        stack.callback(time.sleep, 1000)
        channel.send(channels.DONE)
        channel.receive()

    workers = [start(target) for _ in range(4)]
    for worker in workers:
        worker.receive()
    for worker in workers:
        worker.hang_up()
    begin = time.monotonic()
    for worker in workers:  # One after the other, as promises are called.
        processes.close([worker], grace=1)
    assert time.monotonic() - begin < 3
