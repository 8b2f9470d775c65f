"""The runs on this machine: found, named, judged from outside, deleted. No torch here.

What a run's own process could not write is worked out from what it left: a process that is gone
wrote no last word, yet people want to know what happened and what they can do.
"""

import contextlib
import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import psutil

from app.paths import paths
from finetune.runs import RunError, RunFolder, Status

LOG = "log.txt"
"""What a detached run writes, in its folder."""
LOG_BYTES = 8000
_DELETED = ".deleted"
"""Ends the name that a run has while it is deleted; begun with a dot, it is no run any more."""
_CRASH = "Fatal Python error:"


def every_run() -> list[RunFolder]:
    """The runs in their usual place, in the order they were begun."""
    root = paths().runs
    if not root.is_dir():
        return []
    found = []
    for path in root.iterdir():
        with contextlib.suppress(OSError):  # deleted meanwhile
            if not (path.name.startswith(".") and path.name.endswith(_DELETED)):
                found.append(((path / "run.json").stat().st_mtime, path))
    return [RunFolder(path) for _, path in sorted(found)]


def find_run(name: str) -> RunFolder:
    """A run by folder or name. Raises RunError."""
    path, named = Path(os.path.expanduser(name)), paths().runs / name
    if not path.is_dir() and not named.is_dir():
        raise RunError(f"There is no run {name!r}; `orl-chat runs` lists them.")
    run = RunFolder(path if path.is_dir() else named)
    run.info()
    return run


def called(run: RunFolder) -> str:
    """What a command may call it: its name where it lies in the usual place, else its folder."""
    path = run.path.absolute()
    return run.name if path.parent == paths().runs else str(path)


def tuned_update(run: RunFolder) -> int | None:
    """How many updates the run's best checkpoint has had; None without any."""
    best = run.best()
    return None if best is None else int(best.name)


def seen_status(run: RunFolder) -> Status:
    """Where a run stands; one whose process is gone has failed, with the cause in words."""
    status = run.status()
    if status.state != "interrupted":
        return status
    return replace(status, state="failed", message=_cause(run, status))


def _cause(run: RunFolder, status: Status) -> str:
    if status.started is not None and status.started < psutil.boot_time():
        return "The machine was restarted while it trained."
    _, found, crash = log_tail(run).rpartition(_CRASH)
    if found:
        return f"Its process crashed ({crash.splitlines()[0].strip()})."
    return (
        "Its process was killed: somebody ended it, or memory ran out (then close other programs, "
        "or train less at once)."
    )


def log_tail(run: RunFolder, most: int = LOG_BYTES) -> str:
    """The end of the run's log; nothing where it has none."""
    try:
        with (run.path / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def can_resume(run: RunFolder, status: Status) -> bool:
    """Whether going on is possible: it ended before its last update, and left a whole state."""
    ended = status.state in ("stopped", "failed", "interrupted")
    return ended and any(_is_whole(folder) for folder in run.states())


def _is_whole(state: Path) -> bool:
    """Both files of a state, as long as they say they are."""
    try:
        json.loads((state / "state.json").read_text(encoding="utf-8"))
        with (state / "optimizer.safetensors").open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > 100_000_000:
                return False
            header = json.loads(file.read(length))
            size = file.seek(0, os.SEEK_END)
        ends = [int(t["data_offsets"][1]) for name, t in header.items() if name != "__metadata__"]
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError, IndexError):
        return False
    return size == 8 + length + max(ends, default=0)


def delete_run(run: RunFolder) -> None:
    """Delete a run with all its checkpoints. Raises RunError, OSError."""
    if run.status().alive:
        raise RunError(f"{run.name} is running; stop it first.")
    run.info()  # what is no run stays
    # First out of the list, then away: half a run must never look like one.
    gone = run.path.with_name(f".{run.path.name}{_DELETED}")
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(run.path, gone)
    shutil.rmtree(gone)


def size_of(run: RunFolder) -> int:
    """Bytes of all files in the run's folder, as far as they can be seen."""
    total = 0
    for folder, _, names in os.walk(run.path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:  # dropped meanwhile: the run goes on
                continue
    return total
