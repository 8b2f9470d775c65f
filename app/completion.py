"""Paths that begin as typed, for a field in which a file is named."""

import itertools
import os
from pathlib import Path

MOST_ENTRIES = 5000
"""Of one folder that are looked at."""


def matches(typed: str, limit: int = 100) -> list[str]:
    """Paths that begin with `typed`, folders first and with a slash at their end; hidden ones only
    when a dot was typed. A folder that cannot be read has none."""
    folder, _, begin = typed.rpartition("/")
    root = f"{folder}/" if folder or typed.startswith("/") else ""
    try:
        with os.scandir(expanded(root or ".")) as entries:
            found = [
                (not entry.is_dir(), entry.name)
                for entry in itertools.islice(entries, MOST_ENTRIES)
                if entry.name.lower().startswith(begin.lower())
                and (begin.startswith(".") or not entry.name.startswith("."))
            ]
    except (OSError, ValueError):
        return []
    return [root + name + ("" if is_file else "/") for is_file, name in sorted(found)[:limit]]


def common_start(paths: list[str]) -> str:
    """What all `paths` begin with, character by character."""
    first, last = min(paths, default=""), max(paths, default="")
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(character for character, _ in same)


def expanded(typed: str) -> Path:
    """The path that was typed, `~` being the user's folder."""
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        return Path(typed)
