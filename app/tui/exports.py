"""Where the screens save what somebody wants to keep: a folder of its own, names by the clock."""

import time
from pathlib import Path

from app.paths import ensure, paths


def export_path(kind: str, suffix: str) -> Path:
    """A name that nothing has yet, in the folder of exports. Raises OSError when there is none."""
    folder = paths().exports
    if not ensure(folder):
        raise PermissionError(13, "the folder cannot be written", str(folder))
    stem = f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = folder / f"{stem}.{suffix}"
    number = 2
    while path.exists():
        path = folder / f"{stem}-{number}.{suffix}"
        number += 1
    return path


def not_saved(error: OSError) -> str:
    """What to say when writing there failed."""
    return f"It cannot be saved: {error.strerror}; `orl-chat paths` names the folder of exports."
