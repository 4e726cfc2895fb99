"""A process that says why Ray has ended another one, which Ray does without a word.

When Ray's raylet is gone, its library ends the process that it is part of, in the
middle of whatever that does: nothing is raised, nothing is printed. So this program
waits for that end, and finds the reason in Ray's logs.
"""

import pathlib
import sys

REASONS = {
    "raylet": "connection to the plasma store is failed. Terminate the process",
    "gcs_server": "Failed to connect to GCS",
}
"""What stands in the log of a process that Ray has ended, by what had died."""

FAREWELL = b"bye"
"""What a process says that ends by itself."""


def message(name: str, logs: str) -> str:
    """One line about a process of Ray that has died."""
    return (
        f"Ray's {name} has died; see {logs}/{name}.out on its machine, and resume "
        "from the last checkpoint."
    )


def main(logs: str, pid: str) -> None:
    """Wait until the other process ends; speak if it did not say that it would."""
    if sys.stdin.buffer.read() == FAREWELL:
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[?25h")  # A progress bar has hidden the cursor.
    for path in pathlib.Path(logs).glob(f"python-core-driver-*_{pid}.log"):
        text = path.read_text(errors="replace")
        for name, reason in REASONS.items():
            if reason in text:
                sys.exit(f"error: {message(name, logs)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
