"""Fixtures of all tests."""

import contextlib
import gc
import os
import resource
import signal
import sys

import pytest

# Background jobs of shells ignore interrupts, and so would the processes of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # Until all modules are imported; see `pytest_collection_finish`.


def pytest_configure(config):
    """Keep compiled programs of tests apart from the user's; share out processors."""
    cache = getattr(config, "cache", None)  # Pytest has an option against it.
    os.environ["AGENTS_COMPILED"] = str(cache.mkdir("compiled")) if cache else "off"
    if "PYTEST_XDIST_WORKER" in os.environ:  # Others use the other processors.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what is slow, and let tests that need Ray share one worker of pytest.

    `quick` above a test names those of its cases that are not slow.
    """
    unknown = {}
    for item in items:
        if mark := item.get_closest_marker("quick"):
            case = item.callspec.id
            if case not in mark.args:
                item.add_marker("slow")
            unknown.setdefault(item.function, set(mark.args)).discard(case)
        if "ray" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("ray"))
    wrong = {function.__name__: cases for function, cases in unknown.items() if cases}
    if wrong and not any("::" in x for x in config.args):
        raise pytest.UsageError(f"There are no such cases of these tests: {wrong}")


def pytest_collection_finish():
    """Collect garbage less often, and run graphs of quick tests as they were traced.

    Graphs are made of many objects that live long, as do the modules imported by now.
    Most are executed a few times, and TensorFlow takes longer to optimize them than that
    saves. Slow tests, and scripts in processes of their own, run them as users do.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)
    if "PYTEST_XDIST_WORKER" in os.environ and "tensorflow" in sys.modules:
        optimizer = sys.modules["tensorflow"].config.optimizer
        optimizer.set_experimental_options({"disable_meta_optimizer": True})


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


@pytest.fixture
def headless(monkeypatch):
    """No display and nothing set by hand."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
