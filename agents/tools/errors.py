"""The two roots of all errors, `Mistake` and `Failure`, and one-line texts."""

import contextlib
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterator
from types import TracebackType

LONGEST = 800
"""Largest number of characters in a line; longer ones lose their middle."""
LIBRARIES = sys.stdlib_module_names | {
    "agents",
    "gymnasium",
    "keras",
    "numpy",
    "ruamel",
    "tensorflow",
    "wandb",
}
"""Packages whose frames say nothing about the code of a user."""

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
HEADER = "Traceback (most recent call last):"
"""First line of tracebacks."""


class Mistake(ValueError):
    """Mistake of the user, in one line that says what to do.

    If the user's own code failed, its traceback follows in the text after an empty
    line. Commands print the text and exit with code 2, before they start any process.
    """

    def __init__(self, text: str) -> None:
        first, traceback_, rest = text.partition(f"\n\n{HEADER}")
        super().__init__(f"{line(first)}{traceback_}{rest}")


class Failure(RuntimeError):
    """Failure of a run, in one line that says what has failed.

    The traceback of the failed code may follow. Commands print the text and exit with
    code 1.
    """


def control(text: str) -> str | None:
    """Return the first character that files cannot hold or that controls terminals."""
    wrong = (x for x in text if unicodedata.category(x) in ("Cc", "Cs"))
    return next((x for x in wrong if x not in "\n\t"), None)


def line(text: str) -> str:
    """Shorten a text to one line of printable characters."""
    words = " ".join(text.split())
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in words)
    if len(shown) <= LONGEST:
        return shown
    return f"{shown[: LONGEST // 2]} ... {shown[-LONGEST // 4 :]}"


@contextlib.contextmanager
def framed(
    what: str,
    kind: type[Mistake | Failure] = Mistake,
    others: type[Exception] | tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn errors of code that a user has named into mistakes, or failures of a run.

    The traceback begins at the first frame of that code. It is omitted if a library
    refuses arguments, since no such code is involved.

    Args:
      what: Beginning of the line.
      kind: Class of the mistake or failure to raise; others of the same root pass.
      others: Errors that pass unchanged.
    """
    root = Mistake if issubclass(kind, Mistake) else Failure
    try:
        yield
    except (root, KeyboardInterrupt, GeneratorExit):
        raise
    except others:
        raise
    except BaseException as error:  # Modules may end the process, too.
        raise kind(line(f"{what}: {_refusal(error)}") + _details(error)) from error


def reason(error: BaseException) -> str:
    """Return type and text of an exception, or where it was raised, in one line."""
    kind = type(error).__name__
    try:
        text = _COLORS.sub("", str(error)).strip()
    except Exception:  # The error is a user's object.
        return kind
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    said = [x for x in lines if not x.startswith("Exception encountered")]  # By Keras.
    if not lines:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        return f"{kind}{''.join(f': {x.line} ({x.filename}:{x.lineno})' for x in last)}"
    last = text.startswith("in user code:")  # By AutoGraph, around frames.
    return f"{kind}: {(said or lines)[-1 if last else 0].removeprefix(f'{kind}: ')}"


def _refusal(error: BaseException) -> str:
    """Return the reason of an error, without its type if the text suffices."""
    if isinstance(error, SystemExit):
        return f"it ends the process by SystemExit({error})."
    kind, _, text = reason(error).partition(": ")
    if not text:
        return f"{kind}."
    text = text.rpartition("__init__() ")[2]
    if isinstance(error, ModuleNotFoundError):
        return f"{text}; install its package, or start in the directory that has it."
    plain = isinstance(error, ImportError) or type(error) in (TypeError, ValueError)
    return text if plain else f"{kind}: {text}"


def _details(error: BaseException) -> str:
    """Return the traceback from the first frame outside of the libraries."""
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
    """Return the package of the first frame of a traceback."""
    return frames.tb_frame.f_globals.get("__name__", "").partition(".")[0]
