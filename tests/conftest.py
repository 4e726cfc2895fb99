"""What tests of all parts share."""

import contextlib
import resource
import signal

import pytest

# Background jobs of shells ignore interrupts, and so would the processes of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def full_disk():
    """Let no file become longer than so many bytes, which fails as a full disk does."""

    @contextlib.contextmanager
    def limited(num_bytes):
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)

    return limited
