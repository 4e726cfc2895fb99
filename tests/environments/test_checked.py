"""Environments that are checked in processes of others."""

import multiprocessing
import queue

from agents.environments import checked


def test_processes_that_cannot_start_wait_until_they_are_asked():
    """Otherwise whoever asks would find their process gone, but not why."""
    (parent, child), (copy, _) = multiprocessing.Pipe(), multiprocessing.Pipe()
    errors = queue.SimpleQueue()
    parent.send(("_check_spaces", None))

    def constructor():
        raise ZeroDivisionError("the fault")

    checked._work(2, 1, constructor, child, copy, None, errors, None)
    assert not child.poll()
    assert parent.recv() == (None, False)
    index, _, error, _ = errors.get()
    assert index == 1
    assert "Environment row 3" in str(error)
    assert "ZeroDivisionError: the fault" in str(error)
