"""Packages whose modules are imported at their first use (PEP 562).

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
    """Create lazy attributes of a package for its exports and all submodules.

    Use as `__getattr__, __dir__, __all__ = lazy.attach(__name__, {...})`, below a block
    `if TYPE_CHECKING:` that imports the same exports, for type checkers and editors.

    Args:
      package: Full name of the package.
      names: Map from exported attributes to their modules, relative to the package. No
        export may have the name of a module of the package, because importing that
        module would replace it.

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
    """Import a submodule, or raise AttributeError."""
    path = f"{package}.{name}"
    missing = f"module {package!r} has no attribute {name!r}"
    if name.startswith("__"):
        raise AttributeError(missing)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:  # A missing dependency.
            raise
        raise AttributeError(missing) from None
