"""Files that are replaced as a whole, and directories with one process at a time."""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import socket
from collections.abc import Iterator
from typing import BinaryIO

from agents.tools import errors

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of full disks and exceeded quotas."""
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Errors of file systems without locks."""
LOCK = "lock"
"""File that is locked by the process that works in its directory."""


def absence(directory: str | os.PathLike, name: str) -> str:
    """Return a line about a directory that should be a run, but has no such file."""
    inside = sorted(x.parent for x in pathlib.Path(directory).glob(f"*/{name}"))
    advice = f"name one of the runs inside, such as {inside[-1]}" if inside else ""
    return f"{directory} is not a run: it has no {name}{'; ' * bool(advice)}{advice}."


class WriteError(errors.Failure):
    """File that cannot be written, in one line that names the required space."""


class InUseError(errors.Mistake):
    """Directory that another process works in, in one line."""


def write_error(path: pathlib.Path, error: Exception, needs: str) -> WriteError:
    """Create the error for a file or directory that cannot be written.

    Args:
      path: File or directory.
      error: Error of the operating system, or of TensorFlow, which quotes it.
      needs: Required space, as text.
    """
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    else:
        line = str(error).split("\n")[0]
        reason = line.rpartition("; ")[2].partition(" [Op:")[0]
    free = size(shutil.disk_usage(path.parent).free)
    return WriteError(
        f"cannot write {path}: {reason}; it needs {needs}, and {free} are free."
    )


def size(num_bytes: int) -> str:
    """Format a number of bytes with a unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} bytes"


@contextlib.contextmanager
def whole(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path to write to, and replace the file by it at the end.

    After any failure, the old file is still there, unchanged. The new one has its mode.

    Raises:
      WriteError: if the disk is full.
    """
    path = pathlib.Path(path)
    target = pathlib.Path(os.path.realpath(path))
    special = target.exists() and not target.is_file()  # Devices are not replaced.
    partial = target if special else target.with_name(f".partial-{target.name}")
    try:
        yield partial
        if not special:
            if target.exists():
                shutil.copymode(target, partial)
            flush(partial)
            partial.replace(target)
            flush(target.parent)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        written = partial.stat().st_size if partial.exists() else 0
        needs = f"more than {size(written)}" if written else "more"
        raise write_error(path, error, needs) from error
    finally:
        if not special:
            partial.unlink(missing_ok=True)


def write(path: str | pathlib.Path, text: str) -> None:
    """Write a text file, as a whole or not at all."""
    with whole(path) as partial:
        partial.write_bytes(text.encode())


def flush(path: pathlib.Path) -> None:
    """Flush a file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut(path: pathlib.Path, end: int | None = None) -> int:
    """Truncate a file to its whole lines within `end` bytes; return the new size.

    Without an end, all whole lines stay.
    """
    size_ = path.read_bytes()[:end].rfind(b"\n") + 1
    os.truncate(path, size_)
    return size_


@contextlib.contextmanager
def alone(directory: str | pathlib.Path, wait: bool = False) -> Iterator[None]:
    """Lock a directory against other processes that use this function.

    The kernel holds the lock and drops it when the process ends in any way, so a
    leftover file locks nothing; its content only names the process to wait for. Network
    file systems pass the lock on to other machines; file systems without locks keep
    no process out.

    Args:
      directory: Location of the file `lock`.
      wait: Whether to wait until others have finished.

    Raises:
      InUseError: if another process has the lock and `wait` is false.
    """
    path = pathlib.Path(directory) / LOCK
    with contextlib.ExitStack() as stack:
        file = None
        while file is None or not _is_at(file, path):  # Its last owner removes it.
            file = stack.enter_context(path.open("a+b", buffering=0))
            _lock(file, directory, wait)
        with contextlib.suppress(OSError):  # Full disks can be locked, too.
            file.truncate(0)
            file.write(f"pid {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(file: BinaryIO, directory: str | pathlib.Path, wait: bool) -> None:
    """Lock a file, if the file system can; raises InUseError."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read(100).decode(errors="replace").strip()
        owner = f" ({owner})" if owner else ""
        text = f"another process works on {directory}{owner}"
        raise InUseError(text) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _is_at(file: BinaryIO, path: pathlib.Path) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
