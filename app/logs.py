"""Log files: where tracebacks go, so that users get a sentence and a file to look into.

Tracebacks are logged without local variables, which may hold a token or a whole conversation.
"""

import contextlib
import logging
import logging.handlers
import os
import sys
from pathlib import Path

from app.paths import ensure, paths

FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
LOG_BYTES = 1_000_000
KEPT_FILES = 3
TAIL = 20_000
"""Bytes of each log that are shown."""


def log_to_file(path: Path) -> bool:
    """Send this process's log to `path`, rotated; False (and no log) when it cannot be written."""
    handler: logging.Handler = logging.NullHandler()
    if ensure(path.parent):
        with contextlib.suppress(OSError):
            handler = logging.handlers.RotatingFileHandler(
                path, maxBytes=LOG_BYTES, backupCount=KEPT_FILES, encoding="utf-8", delay=True
            )
    _install(handler)
    return not isinstance(handler, logging.NullHandler)


def log_to_stderr() -> None:
    """Send this process's log to stderr (the engine process, whose stderr is a file)."""
    _install(logging.StreamHandler(sys.stderr))


def _install(handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "_orl_chat", False):
            root.removeHandler(old)
            old.close()
    handler._orl_chat = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False


def tail(path: Path, size: int) -> str:
    """The last `size` bytes of a log, from the beginning of a line; why, where there are none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"({error.strerror})"
    whole = text if end <= size else text.partition("\n")[2]
    return whole.strip() or "(empty)"


def all_tails(size: int = TAIL, *, with_folder: bool = True) -> str:
    """The end of both logs, under their names."""
    logs = (paths().log, paths().engine_log)
    names = [str(path) if with_folder else path.name for path in logs]
    tails = [tail(path, size) for path in logs]
    return "\n\n\n".join(f"{name}\n\n{text}" for name, text in zip(names, tails, strict=True))
