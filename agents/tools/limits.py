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

    Each runs in a thread of its own, one after another. If one hangs beyond the grace
    period, all others are called at once with a new grace period. Threads that still
    hang are abandoned; they do not outlive the program.
    """
    threads = [
        threading.Thread(target=_print_errors, args=[function], daemon=True)
        for function in functions
    ]
    for _ in range(2):
        end = time.monotonic() + grace
        for thread in threads:
            if not thread.ident:
                thread.start()
            thread.join(max(0, end - time.monotonic()))


def _print_errors(function: Callable[[], None]):
    try:
        function()
    except BaseException:
        traceback.print_exc()
