"""Time limits for environments in the process of the caller."""

import contextlib
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from agents.tools import processes


@contextlib.contextmanager
def interrupted(seconds: float | None) -> Iterator[None]:
    """Raise `TimeoutError` in the block after this number of seconds; None for never.

    Signals do this, so there is no limit in threads other than the main one, and code
    that never returns to Python is not interrupted.
    """
    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main:
        yield
        return

    def expire(*_):
        raise TimeoutError(f"not done within {seconds:g} s")

    start = time.monotonic()
    handler = signal.signal(signal.SIGALRM, expire)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # Another timer was running.
            left = max(left - (time.monotonic() - start), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def close(functions: Sequence[Callable[[], None]], grace: float = processes.GRACE):
    """Call functions that close environments; print their exceptions.

    They are called one after another, in the main thread if this is it, because some
    resources can only be closed in the thread that opened them. If they take longer than
    the grace period, all others are called at once in other threads, with a new grace
    period. Threads that still hang are abandoned; they do not outlive the program.
    """
    left, end = list(functions), time.monotonic() + grace
    if threading.current_thread() is threading.main_thread():
        while left and (seconds := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError), interrupted(seconds):
                _print_errors(left.pop(0))
    threads = [
        threading.Thread(target=_print_errors, args=[function], daemon=True)
        for function in left
    ]
    for thread in threads:
        thread.start()
        thread.join(max(0, end - time.monotonic()))
    end = time.monotonic() + grace
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))


def _print_errors(function: Callable[[], None]):
    try:
        function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        traceback.print_exc()
