"""One `orl-chat` command as a child process of the window: how far it is, and what came of it.

The command prints JSON lines: objects of the kind "progress", then its result. Its last words on
stderr are the sentence of a failure. The process does not outlive the call that runs it; what it
starts detached does.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.child import cli_command
from app.wire import MAX_LINE

STDERR_KEPT = 4000


class JobError(Exception):
    """The command failed; the message is its sentence."""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` of a stage; 0 of 0 where that is not known."""

    stage: str
    done: int = 0
    total: int = 0


async def run_job(
    arguments: Sequence[str], tell: Callable[[Progress], None] = lambda progress: None
) -> Any:
    """Run `orl-chat ARGUMENTS`; what it printed last, as JSON holds it. An exit code of 1 with a
    result is a result ("prompts check" finds problems).

    Raises:
        JobError: it cannot be started, or ended without a result.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *cli_command(*arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE,
            start_new_session=True,
        )
    except OSError as error:
        raise JobError(f"The work cannot be started: {error.strerror}.") from error
    try:
        result, words = await asyncio.gather(_results(process, tell), _last_words(process))
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if result is None:
        raise JobError(words or f"It ended without a result (exit code {process.returncode}).")
    return result


async def _results(
    process: asyncio.subprocess.Process, tell: Callable[[Progress], None]
) -> Any | None:
    """Tell the progress; the last other JSON line."""
    assert process.stdout is not None
    result = None
    while line := await _line(process.stdout):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and row.get("kind") == "progress":
            tell(Progress(str(row.get("stage")), *(_whole(row, n) for n in ("done", "total"))))
        elif isinstance(row, dict | list):
            result = row
    return result


def _whole(row: dict[str, Any], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        return b"(a line that is too long)\n"


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """The last line of stderr."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(STDERR_KEPT):
        kept = (kept + piece)[-STDERR_KEPT:]
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
