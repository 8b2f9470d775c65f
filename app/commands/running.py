"""How every shell command ends: with an exit code, and a sentence on stderr when it failed."""

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from app.text import printable

log = logging.getLogger(__name__)

INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot go on; the message is a sentence for the user."""


def guarded(command: Callable[[], int]) -> int:
    """Run `command`; its exit code, or 1 after a sentence on stderr, or 130 after Ctrl+C."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter must not complain about it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        _tell(error)
        return 1


def prepare_streams() -> None:
    """Neither a stream that is closed nor text that its encoding lacks must end a command."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def quiet_python() -> None:
    """The interpreter's remarks, on a pattern or a test in a file of prompts for one, are not for
    the user's terminal, except where they are asked for."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def say(text: str) -> None:
    """A line to stderr, whatever the terminal's encoding."""
    print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def ctrl_c_asks() -> Iterator[threading.Event]:
    """Inside, the first Ctrl+C sets the event and the second raises KeyboardInterrupt."""
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(error: Exception) -> None:
    from app.failures import explain, sentence
    from app.logs import log_to_file
    from app.paths import paths

    if isinstance(error, CommandError):
        say(sentence(str(error)))
        return
    logged = log_to_file(paths().log)
    log.error("a command failed", exc_info=error)
    told = explain(error, loading=True)
    where = f" Details: {paths().log}" if logged and told.kind == "internal" else ""
    say(" ".join(part for part in (told.message, told.hint) if part) + where)
