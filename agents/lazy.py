"""Packages whose modules are imported when they are first used (PEP 562).

`import agents` and everything a worker process imports stay free of TensorFlow,
because a package's `__init__` names its exports without importing them.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the exports and all submodules of a package lazy attributes of it.

    Use as `__getattr__, __dir__, __all__ = lazy.attach(__name__, {...})`.

    Args:
      package: Full name of the package.
      names: Exported attribute to the module that defines it, relative to the
        package. An export must not be called like a module of the package, since
        importing that module would replace it.

    Returns:
      The functions `__getattr__` and `__dir__`, and the list `__all__`.
    """

    def load(name: str) -> Any:
        if name in names:
            module = importlib.import_module(f"{package}.{names[name]}")
            value = getattr(module, name)
        else:
            value = _submodule(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        module = sys.modules[package]
        submodules = (entry.name for entry in pkgutil.iter_modules(module.__path__))
        return sorted({*vars(module), *names, *submodules})

    return load, directory, sorted(names)


def _submodule(package: str, name: str) -> Any:
    """Import a submodule, or raise as a missing attribute does."""
    path = f"{package}.{name}"
    missing = f"module {package!r} has no attribute {name!r}"
    if name.startswith("__"):
        raise AttributeError(missing)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:  # The module is there, but something it needs is not.
            raise
        raise AttributeError(missing) from None
