"""A real browser without a window, driven by the protocol of its developer tools."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
SECONDS = 60.0


class Browser:
    """Chromium with one open page.

    Attributes:
      events: What the page has told, such as messages on the console and requests.
    """

    def __init__(self):
        self.events = []
        self._count, self._buffer = 0, b""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._out = os.pipe()
        self._in, their_out = os.pipe()

        def connect():  # The browser reads from 3 and writes to 4.
            copies = os.dup(theirs), os.dup(their_out)
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        options = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
        options += ("--remote-debugging-pipe", f"--user-data-dir={self._folder.name}")
        options += ("--window-size=1280,900", "--disable-background-networking")
        self._process = subprocess.Popen(
            [PROGRAM, *options, "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(their_out)
        self._session = None
        (target,) = [
            x
            for x in self.call("Target.getTargets")["targetInfos"]
            if x["type"] == "page"
        ]
        attach = {"targetId": target["targetId"], "flatten": True}
        self._session = self.call("Target.attachToTarget", **attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def call(self, method, **params):
        """Send a command; return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            assert data, "The browser has ended."
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, path, dark=False):
        """Load a file, and wait until it is complete."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait("document.readyState == 'complete' && location.href != 'about:blank'")

    def wait(self, condition):
        """Wait until an expression is true."""
        deadline = time.monotonic() + SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.05)

    def evaluate(self, expression):
        """Return the value of an expression of the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def move(self, x, y):
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def complaints(self):
        """Errors and warnings of the page so far."""
        methods = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [
            event["params"]
            for event in self.events
            if event.get("method") in (*methods, "Runtime.consoleAPICalled")
        ]

    def requests(self):
        """Addresses that the page has asked for, except for data of its own."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]
