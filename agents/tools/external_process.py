"""Client side of environments that live in other processes."""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from agents.tools import channels, checks, processes


class Remote:
    """Client of an environment in another process.

    Attributes are read in that process; `call` calls methods other than `step`,
    `reset`, `render` and `close`. Subclasses implement `_request`.
    """

    def call(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Call a method of the environment; return a promise of its result."""
        return self._request(channels.CALL, name, args, kwargs)

    def render(self) -> Any:
        """Render the environment."""
        return self.call("render")()

    def __getattr__(self, name: str) -> Any:
        """Read an attribute of the environment."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._request(channels.GET, name)()

    def _request(self, kind: bytes, *request: Any) -> Callable[[], Any]:
        """Send a request; return a promise of the reply."""
        raise NotImplementedError


class ExternalProcess(Remote):
    """Environment that is constructed and stepped in its own process.

    With `blocking=False`, methods return a promise at once: a function without
    arguments that waits for the result. Only one promise can be open at a time. The
    constructor does not wait for the process. The process ends with this object, with
    `close` or with the program, whichever comes first.

    Args:
      constructor: Function without arguments that returns the environment; it is
        pickled by value if necessary, so lambdas are allowed.
      timeout: Longest wait for a reply in seconds; None waits forever.
      start_timeout: Longest wait for the construction in seconds.

    Raises:
      processes.EnvProcessError: from all methods if the process fails.
      RuntimeError: for a request before the last promise was called, or after `close`.
    """

    def __init__(
        self,
        constructor: Callable[[], Any],
        timeout: float | None = 60.0,
        start_timeout: float | None = 120.0,
    ):
        self._timeout = timeout
        self._pending = False
        self._spaces = None
        self._worker = processes.Worker(
            _serve,
            constructor,
            name=lambda: "External environment",
            timeout=start_timeout,
        )
        self._closer = weakref.finalize(self, processes.close, [self._worker])

    @property
    def observation_space(self) -> gymnasium.Space:
        """Space of observations; waits until the process has started."""
        return self._start()[0]

    @property
    def action_space(self) -> gymnasium.Space:
        """Space of actions; waits until the process has started."""
        return self._start()[1]

    def step(self, action: Any, blocking: bool = True) -> Any:
        """Step the environment, or return a promise to do so."""
        promise = self.call("step", action)
        return promise() if blocking else promise

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict | None = None,
        blocking: bool = True,
    ) -> Any:
        """Reset the environment, or return a promise to do so."""
        options = {} if options is None else {"options": options}
        promise = self.call("reset", seed=seed, **options)
        return promise() if blocking else promise

    def close(self, blocking: bool = True) -> Callable[[], None] | None:
        """End the process, by force after two seconds; may be repeated."""
        if not blocking:
            self._worker.hang_up()
            return self._closer
        return self._closer()

    def _start(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Wait for the construction of the environment; return its spaces."""
        if self._spaces is None:
            self._spaces = self._receive()
            self._worker.set_timeout(self._timeout)
        return self._spaces

    def _request(self, kind: bytes, *request: Any) -> Callable[[], Any]:
        """Send a request; return a promise of the reply."""
        if not self._closer.alive:
            raise RuntimeError("This environment process has been closed.")
        if self._pending:
            raise RuntimeError("Call the promise of the last request first.")
        self._start()
        try:
            self._worker.send(kind, request)
        except processes.EnvProcessError:
            self.close()
            raise
        self._pending = True
        results = []

        def promise():
            if not results:
                results.append(self._receive())
                self._pending = False
            return results[0]

        return promise

    def _receive(self) -> Any:
        """Return the value of the next reply; other errors than of data end the process."""
        if not self._closer.alive:
            raise RuntimeError("This environment process has been closed.")
        try:
            kind, value = self._worker.receive()
        except checks.EnvDataError:  # The process goes on.
            self._pending = False
            raise
        except BaseException:
            self.close()
            raise
        if kind == channels.MISSING:
            self._pending = False
            raise AttributeError(value)
        return value


def respond(channel: channels.Channel, env: Any, kind: bytes, request: Sequence):
    """Answer a request of a `Remote`, in the process of the environment."""
    name, *arguments = request
    if kind == channels.CALL:
        args, kwargs = arguments
        channel.send(channels.RESULT, _attribute(env, name)(*args, **kwargs))
        return
    try:
        result = _attribute(env, name)
        if callable(result):
            raise TypeError(f"use `call({name!r}, ...)` for methods")
        channel.send(channels.RESULT, result)
    except (channels.Disconnected, TimeoutError):
        raise
    except Exception as error:
        text = f"Cannot read {name!r} of the environment: {error}"
        channel.send(channels.MISSING, text)


def _attribute(env: Any, name: str) -> Any:
    """Return an attribute of an environment or of those that it wraps."""
    if not hasattr(env, name) and hasattr(env, "get_wrapper_attr"):
        return env.get_wrapper_attr(name)
    return getattr(env, name)


def _serve(
    channel: channels.Channel,
    stack: contextlib.ExitStack,
    constructor: Callable[[], Any],
):
    """Serve the environment of an `ExternalProcess` in its process."""
    env = constructor()
    stack.callback(env.close)
    channel.send(channels.RESULT, (env.observation_space, env.action_space))
    while True:
        try:
            respond(channel, env, *channel.receive())
        except checks.EnvDataError as error:
            channel.send(channels.INVALID, error)
