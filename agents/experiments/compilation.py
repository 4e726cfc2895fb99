"""Compiled programs, kept from one start to the next.

XLA compiles an algorithm once per machine and version. TensorFlow reads and writes its
programs in a directory, but fails on incomplete files. So each process gets a directory
of its own with links to the programs that are known to be complete, and adds its new
programs to these when it ends.
"""

import atexit
import contextlib
import errno
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping

import psutil

from agents.tools import files

VARIABLE = "AGENTS_COMPILED"
"""Environment variable: a directory for compiled programs, or `off`."""
FLAG = "--tf_xla_persistent_cache_directory"
FREE_BYTES = 2**28
"""Required free space: a program that cannot be written would end the process."""
MOST_BYTES = 2**30
"""Largest total size of all programs; beyond it, the oldest ones are removed."""


def keep() -> None:
    """Keep compiled programs for later processes; call before importing TensorFlow.

    Nothing is kept where there is no home, the directory cannot be written to or has
    little free space, or `TF_XLA_FLAGS` names another one.
    """
    try:
        folder = directory(os.environ)
    except RuntimeError:  # The user has no home.
        return
    flags = os.environ.get("TF_XLA_FLAGS", "")
    of_a_parent = f'{FLAG}="{re.escape(str(folder))}/[^"]*"'
    flags = re.sub(of_a_parent, "", flags).strip()
    late = "tensorflow" in sys.modules
    if folder is None or late or FLAG in flags or '"' in str(folder):
        return
    with contextlib.suppress(OSError):
        own = borrow(folder)
        atexit.register(give_back, folder, own, os.getpid())
        os.environ["TF_XLA_FLAGS"] = f'{flags} {FLAG}="{own}"'.strip()


def directory(environ: Mapping[str, str]) -> pathlib.Path | None:
    """Return the directory for programs of this machine and version; none if off."""
    chosen = environ.get(VARIABLE)
    if chosen == "off":
        return None
    cache = environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parent = pathlib.Path(chosen or pathlib.Path(cache) / "agents" / "compiled")
    version = importlib.metadata.version("tensorflow")
    return parent.absolute() / f"{version}-{_processor()}"


def borrow(folder: pathlib.Path) -> pathlib.Path:
    """Create a directory with links to all programs; remove those of ended processes.

    Raises:
      OSError: if it cannot be written to, or has little free space.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    for other in folder.glob("process-*"):
        if not psutil.pid_exists(int(other.name.split("-")[1])):
            shutil.rmtree(other, ignore_errors=True)
    own = tempfile.mkdtemp(prefix=f"process-{os.getpid()}-", dir=folder)
    for program in _programs(folder):
        with contextlib.suppress(FileNotFoundError):  # Another process removes it.
            os.link(program, pathlib.Path(own, program.name))
    return pathlib.Path(own)


def give_back(folder: pathlib.Path, own: pathlib.Path, owner: int) -> None:
    """Add the new programs of a process, unless this is its child; see `borrow`."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(OSError):
        for program in _programs(own):
            if not (folder / program.name).exists():
                files.flush(program)
                program.rename(folder / program.name)
        _prune(folder)
    shutil.rmtree(own, ignore_errors=True)


def _prune(folder: pathlib.Path) -> None:
    """Remove the oldest programs beyond the largest size."""
    total = 0
    for program in sorted(_programs(folder), key=_age):
        total += program.stat().st_size
        if total > MOST_BYTES:
            program.unlink(missing_ok=True)


def _programs(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.glob("*.pb"))


def _age(program: pathlib.Path) -> float:
    return -program.stat().st_mtime


def _processor() -> str:
    """Return a name of this kind of processor."""
    facts = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        names = "model name", "flags", "Features"
        facts += sorted({x for x in lines if x.startswith(names)})
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
