"""Messages between two processes."""

import socket
import threading
import time

import numpy as np
import pytest

from agents.tools import channels

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def ends():
    """Both ends of a connection in this process."""
    found = [channels.Channel(end) for end in socket.socketpair()]
    yield found
    for channel in found:
        channel.close()


def test_messages_arrive_in_order(ends):
    ours, theirs = ends
    ours.send(channels.STEP)
    ours.send(channels.CALL, {"x": np.arange(3), "f": lambda: 5})
    ours.send(channels.RESET)
    assert theirs.receive() == (channels.STEP, None)
    kind, value = theirs.receive()
    assert kind == channels.CALL
    assert value["f"]() == 5
    np.testing.assert_array_equal(value["x"], [0, 1, 2])
    assert theirs.receive() == (channels.RESET, None)


def test_end_of_the_other_side_is_seen(ends):
    ours, theirs = ends
    theirs.send(channels.RESULT, "last words")
    theirs.close()
    with pytest.raises(channels.Disconnected):
        ours.send(channels.STEP)
    assert ours.receive() == (channels.RESULT, "last words")
    with pytest.raises(channels.Disconnected):
        ours.receive()


@pytest.mark.quick("0.2")
@pytest.mark.parametrize("seconds", [0.2, 1.3])
def test_waiting_has_a_limit(ends, seconds):
    ours, _ = ends
    ours.set_timeout(seconds)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive()
    assert seconds - 0.05 < time.monotonic() - start < 60
    with pytest.raises(TimeoutError):
        ours.send(channels.RESULT, bytes(10_000_000))


def test_nothing_is_sent_of_what_cannot_be_pickled(ends):
    ours, theirs = ends
    with pytest.raises(TypeError, match="pickle"):
        ours.send(channels.RESULT, threading.Lock())
    ours.send(channels.DONE)
    assert theirs.receive() == (channels.DONE, None)


def test_large_messages_are_complete(ends):
    ours, theirs = ends
    data = np.random.default_rng(0).integers(0, 255, 3_000_000, np.uint8)
    thread = threading.Thread(target=ours.send, args=(channels.RESULT, data))
    thread.start()
    np.testing.assert_array_equal(theirs.receive()[1], data)
    thread.join()
