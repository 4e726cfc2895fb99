"""Suppression of messages that TensorFlow prints before it can be configured."""

import contextlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib import machinery
from types import ModuleType
from typing import Any

LEVEL, NOTHING = "TF_CPP_MIN_LOG_LEVEL", "3"


def silence() -> None:
    """Import TensorFlow without messages, unless the user has set another level."""
    level = os.environ.setdefault(LEVEL, NOTHING)
    if level == NOTHING and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of TensorFlow, which it finds once."""

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loader that lets the original one import the module, without messages."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        with _silent_stderr():
            self._loader.exec_module(module)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Suppress the output of libraries to the error stream of the process."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, ValueError, OSError):  # There is none, or it is closed.
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
