"""What this machine can do, asked of `orl-chat doctor --json` in a process of its own.

The look imports torch and computes a little on the device; nothing of that may happen in the
process that draws, neither the time it takes nor what a driver may do to it.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.child import cli_command
from engine.machine.facts import Row

log = logging.getLogger(__name__)

PATIENCE = 180.0
"""Seconds after which a look at the machine is given up: a hung driver can block it for good."""
_WORST_FIRST = ("no", "warn", "ok")
_BY_HAND = "Run `orl-chat doctor` in a shell to see more."


@dataclass(frozen=True)
class Verdict:
    """What the doctor said. `rows` are in its order; `runs_large` is about the checkpoint that it
    judged memory by."""

    summary: str
    can_chat: bool
    runs_large: bool
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, data: Any) -> "Verdict":
        """From the doctor's JSON. Raises KeyError, TypeError, ValueError for what is none."""
        rows = tuple(_row(row) for row in data["rows"])
        return cls(str(data["summary"]), bool(data["can_chat"]), bool(data["runs_large"]), rows)

    @property
    def sorted_rows(self) -> list[Row]:
        """What is missing first: a small window shows only the beginning."""
        return sorted(self.rows, key=lambda row: _WORST_FIRST.index(row.state))


def _row(data: Any) -> Row:
    state = data["state"]
    if state not in _WORST_FIRST:
        raise ValueError(f"a row is {state!r}")
    return Row(str(data["name"]), state, *(str(data[name]) for name in ("found", "need", "fix")))


class CheckFailedError(Exception):
    """The machine could not be looked at; the message is for the user."""


def doctor_command(option: str = "--json") -> list[str]:
    """The command that runs the doctor."""
    return cli_command("doctor", option)


async def ask_doctor(command: Sequence[str], *, patience: float = PATIENCE) -> Verdict:
    """Run `command` and read what it prints. The process does not outlive this call.

    Raises:
        CheckFailedError: it cannot be started, does not end, or prints something else.
    """
    out, err, code = await run_doctor(command, patience=patience)
    try:
        return Verdict.of(json.loads(out))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the machine check failed: %s", err.decode("utf-8", "replace")[-4000:])
        raise CheckFailedError(
            f"The machine check ended without a report (exit code {code}). {_BY_HAND}"
        ) from error


async def run_doctor(
    command: Sequence[str], *, patience: float = PATIENCE
) -> tuple[bytes, bytes, int | None]:
    """Run `command`: its stdout, its stderr and its exit code. Raises CheckFailedError when it
    cannot be started or does not end."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CheckFailedError(f"The machine check cannot be started: {error.strerror}.") from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), patience)
    except TimeoutError:
        raise CheckFailedError(
            f"The machine check did not end in {patience:.0f} s. {_BY_HAND}"
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return out, err, process.returncode
