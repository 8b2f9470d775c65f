"""The message that was typed and not sent when the program ended, given back at the next start.

A convenience: where it cannot be written or read, nothing is said and nothing else suffers.
"""

import contextlib
import os
from pathlib import Path

from app.paths import ensure

LARGEST = 4 * 2**20
"""Bytes that are read back; a longer file is not one that this module wrote for a person."""


def keep(text: str, path: Path) -> None:
    """Write `text`, readable by its owner alone; without any, forget an earlier one."""
    with contextlib.suppress(OSError):
        if not text.strip():
            path.unlink(missing_ok=True)
        elif ensure(path.parent):
            part = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
            os.replace(part, path)


def take(path: Path) -> str:
    """What was kept, once: two windows do not both get it."""
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(LARGEST)
        path.unlink()
        return text
    return ""
