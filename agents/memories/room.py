"""Memory of the machine that is free."""

import pathlib

import psutil


def free_bytes(group: pathlib.Path = pathlib.Path("/sys/fs/cgroup")) -> int:
    """Memory that can be taken without swapping, by the limit of a container too."""
    free = psutil.virtual_memory().available
    try:
        limit, used = (
            int((group / name).read_text()) for name in ("memory.max", "memory.current")
        )
        pairs = map(str.split, (group / "memory.stat").read_text().splitlines())
        cached = int(dict(pairs)["inactive_file"])  # Is given back when it is needed.
    except (OSError, ValueError):  # No container, or without a limit.
        return free
    return min(free, limit - used + cached)
