"""Time limits in the process of the caller."""

import functools
import signal
import threading
import time

import pytest

from agents.tools import limits

pytestmark = pytest.mark.timeout(60)


def spin():
    while True:
        pass


@pytest.mark.parametrize("hang", [spin, lambda: time.sleep(100)])
def test_what_hangs_is_interrupted(hang):
    handler = signal.getsignal(signal.SIGALRM)
    text = r"not done within 0\.1 s"
    with pytest.raises(TimeoutError, match=text), limits.interrupted(0.1):
        hang()
    assert signal.getsignal(signal.SIGALRM) is handler


def test_alarms_of_others_are_kept():
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    before = signal.setitimer(signal.ITIMER_REAL, 50)
    try:
        with limits.interrupted(100):
            pass
        assert 40 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)


def test_no_limit_without_seconds_and_in_other_threads():
    done = []

    def enter():
        with limits.interrupted(0.01):
            time.sleep(0.05)
            done.append(1)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    with limits.interrupted(None):
        assert signal.getitimer(signal.ITIMER_REAL)[0] != 0.01
    assert done == [1]


def test_closing_goes_in_turn_and_prints_errors(capsys):
    order = []

    def fail():
        order.append("fail")
        raise SystemExit("in close")

    limits.close([lambda: order.append(0), fail, lambda: order.append(1)])
    assert order == [0, "fail", 1]
    assert "SystemExit: in close" in capsys.readouterr().err


def test_main_thread_closes_what_it_has_opened():
    found = []
    limits.close([lambda: found.append(threading.current_thread())])
    assert found == [threading.main_thread()]


def test_interrupts_end_closing():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        limits.close([interrupt])


@pytest.mark.parametrize("main", [True, False])
def test_many_that_hang_while_closing_are_left_at_once(main):
    release, started = threading.Event(), []

    def hang():
        started.append(1)
        release.wait(100)

    start = time.monotonic()
    close = functools.partial(limits.close, [hang] * 50, grace=0.2)
    if main:
        close()
    else:
        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
    assert 0.3 < time.monotonic() - start < 5
    assert len(started) == 50
    release.set()
