"""Message channels between two processes, over a pair of sockets.

When one end disappears, the other sees the end of the stream at once.
"""

import math
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any

import cloudpickle

from agents.tools import errors

# A message is one byte, its kind; all kinds but these carry a pickled value. If a
# worker serves two batches, the second kind of each pair is for the second batch.
STEPS, RESETS, DONE = (b"s", b"t"), (b"r", b"q"), b"."
STEP, RESET = STEPS[0], RESETS[0]
START, CALL, GET, RESULT, MISSING, INVALID, ERROR = (
    b"*", b"c", b"g", b"=", b"?", b"#", b"!"
)  # fmt: skip
_BARE = frozenset((*STEPS, *RESETS, DONE))


class Disconnected(errors.Failure):
    """Failure of the process at the other end of a channel."""


class Channel:
    """Message channel over a blocking socket.

    The kernel does the waiting, so a message costs one system call on either side. A
    timeout raises `TimeoutError`.

    Args:
      connection: One end of a socket pair.
      alive: Function that returns whether the other side lives, called every second
        while waiting: its forked children keep its end open after its death.
      work: Function that returns what the other side works on. When that changes, the
        time limit starts again.
    """

    def __init__(
        self,
        connection: socket.socket,
        alive: Callable[[], bool] = lambda: True,
        work: Callable[[], Any] = lambda: None,
    ):
        self._socket = connection
        self._alive, self._work, self._idle = alive, work, None
        self._waits = math.inf  # In the kernel, one after another.

    def set_timeout(self, seconds: float | None):
        """Limit the wait for the idle other side in seconds; None means forever."""
        self._idle = self._work()
        self._waits = math.inf if seconds is None else max(4, math.ceil(seconds))
        wait = 1.0 if seconds is None else seconds / self._waits
        self._limit(socket.SO_RCVTIMEO, wait)
        self._limit(socket.SO_SNDTIMEO, seconds or 0)

    def send(self, kind: bytes, value: Any = None):
        """Send one message; the value is ignored for kinds that carry none.

        Raises:
          Disconnected, TimeoutError: and any error of pickling the value.
        """
        if kind not in _BARE:
            payload = cloudpickle.dumps(value)
            kind = kind + struct.pack("<Q", len(payload)) + payload
        try:
            self._socket.sendall(kind)
        except BlockingIOError:
            raise TimeoutError from None
        except OSError as error:
            raise Disconnected from error

    def receive(self) -> tuple[bytes, Any]:
        """Wait for one message; return its kind and value.

        Raises:
          Disconnected, TimeoutError: and any error of unpickling the value.
        """
        kind = self._read(1)
        if kind in _BARE:
            return kind, None
        (size,) = struct.unpack("<Q", self._read(8))
        return kind, pickle.loads(self._read(size))

    def close(self):
        """Hang up; the other side sees the end of the stream."""
        self._socket.close()

    def _limit(self, option: int, seconds: float):
        """Set a timeout of the socket in seconds; zero means none."""
        micros = max(1, int(seconds * 1e6)) if seconds else 0
        limit = struct.pack("ll", micros // 1_000_000, micros % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def _read(self, size: int) -> bytes:
        """Read exactly this many bytes."""
        chunks, waits, flags, work = [], self._waits, 0, self._idle
        while size:
            try:
                chunk = self._socket.recv(size, flags)
            except BlockingIOError:
                waits -= 1
                if (now := self._work()) != work:
                    work, waits = now, self._waits
                if flags:
                    raise Disconnected from None
                if not self._alive():
                    flags = socket.MSG_DONTWAIT  # Its last words may be waiting.
                elif waits <= 0:
                    raise TimeoutError from None
                continue
            except OSError as error:
                raise Disconnected from error
            if not chunk:
                raise Disconnected
            chunks.append(chunk)
            size -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
