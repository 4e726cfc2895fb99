"""Mistakes of users: one line each, with the traceback of their own code below."""

import contextlib
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterator
from types import TracebackType

LONGEST = 800
"""Characters of a line; of longer ones the middle is left out."""
LIBRARIES = sys.stdlib_module_names | {
    "agents",
    "gymnasium",
    "keras",
    "numpy",
    "ruamel",
    "tensorflow",
}
"""Packages whose frames say nothing to a user about code of their own."""


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
HEADER = "Traceback (most recent call last):"
"""What tracebacks begin with."""


class Mistake(ValueError):
    """A mistake of the user, in one line that says what to do.

    The traceback of the user's own code, if that has failed, is in the text, too, below
    an empty line. Commands print it and end with exit code 2, before they start any
    process.
    """

    def __init__(self, text: str) -> None:
        first, traceback_, rest = text.partition(f"\n\n{HEADER}")
        super().__init__(f"{line(first)}{traceback_}{rest}")


def control(text: str) -> str | None:
    """First character of a text that files cannot hold, or that controls terminals."""
    wrong = (x for x in text if unicodedata.category(x) in ("Cc", "Cs"))
    return next((x for x in wrong if x not in "\n\t"), None)


def line(text: str) -> str:
    """Text in one line of bounded length, without characters that print nothing."""
    words = " ".join(text.split())
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in words)
    if len(shown) <= LONGEST:
        return shown
    return f"{shown[: LONGEST // 2]} ... {shown[-LONGEST // 4 :]}"


@contextlib.contextmanager
def framed(
    what: str,
    kind: type[Mistake] = Mistake,
    others: type[Exception] | tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn errors of code that a user has named into mistakes.

    The traceback begins where that code does. It is left out where a library refuses
    arguments, since there is no such code.

    Args:
      what: Begins the line.
      kind: Mistake to raise.
      others: Errors that stay as they are.
    """
    try:
        yield
    except (Mistake, KeyboardInterrupt, GeneratorExit):
        raise
    except others:
        raise
    except BaseException as error:  # Modules may end the process, too.
        raise kind(f"{what}: {_reason(error)}{_details(error)}") from error


def _reason(error: BaseException) -> str:
    """Kind and text of an error; the text alone where that says it all."""
    try:
        text = str(error).strip()
    except Exception:  # The error is an object of the user.
        text = ""
    if isinstance(error, SystemExit):
        return f"it ends the process by SystemExit({text})."
    if not text:
        return f"{type(error).__name__}."
    lines = [x for x in _COLORS.sub("", text).splitlines() if x.strip()]
    said = [x for x in lines if not x.startswith("Exception encountered")]  # By Keras.
    first = (said or lines)[0].rpartition("__init__() ")[2]
    plain = isinstance(error, ImportError) or type(error) in (TypeError, ValueError)
    return first if plain else f"{type(error).__name__}: {first}"


def _details(error: BaseException) -> str:
    """Traceback from the first frame on that is in none of the libraries."""
    frames = last = error.__traceback__
    while frames is not None and _package(frames) in LIBRARIES:
        frames, last = frames.tb_next, frames
    if frames is None:
        refused = isinstance(error, TypeError | ValueError | ImportError)
        if refused or (_package(last) != "agents" and type(error) is not SyntaxError):
            return ""
        frames = last
    lines = traceback.format_exception(type(error), error, frames)
    return "\n\n" + "".join(lines).strip()


def _package(frames: TracebackType) -> str:
    """Package that the first one of some frames is in."""
    return frames.tb_frame.f_globals.get("__name__", "").partition(".")[0]
