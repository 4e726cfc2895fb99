"""Guard process that reports why Ray has ended another process.

When Ray's raylet is gone, its library ends the process that uses it, at any point and
without an exception or output. So this program waits for that end, and then finds the
reason in Ray's logs.
"""

import pathlib
import sys

REASONS = {
    "raylet": "connection to the plasma store is failed. Terminate the process",
    "gcs_server": "Failed to connect to GCS",
}
"""Log lines of processes that Ray has ended, by the Ray process that died first."""

FAREWELL = b"bye"
"""Message of a process that ends by itself."""


def message(name: str, logs: str) -> str:
    """Return one line about a Ray process that has died."""
    return (
        f"Ray's {name} has died; see {logs}/{name}.out on its machine, and resume "
        "from the last checkpoint."
    )


def main(logs: str, pid: str) -> None:
    """Wait for the end of the other process; report it unless it said farewell."""
    if sys.stdin.buffer.read() == FAREWELL:
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[?25h")  # A progress bar has hidden the cursor.
    for path in pathlib.Path(logs).glob(f"python-core-driver-*_{pid}.log"):
        text = path.read_text(errors="replace")
        for name, reason in REASONS.items():
            if reason in text:
                print(f"error: {message(name, logs)}", file=sys.stderr)
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
