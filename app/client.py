"""The terminal's end of the pipe to the engine process: start it, talk to it, be rid of it.

No torch here and no thread: everything runs on the caller's event loop. The engine runs in a
session of its own (a Ctrl+C in the terminal is not for it) and ends by itself when its stdin
closes, so a killed terminal leaves no orphan. Its stderr goes straight into a file, never into a
pipe that nobody reads. A terminal that reads too slowly loses step messages, nothing else.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.child import python_command
from app.paths import ensure
from app.protocol import (
    MAX_LINE,
    EngineMessage,
    Error,
    ProtocolError,
    Quit,
    Request,
    Step,
    decode_engine,
    encode,
)

TAIL_BYTES = 4000
LOG_BYTES = 1_000_000
CROWDED = 64
"""Messages waiting to be read beyond which step messages are dropped."""


@dataclass(frozen=True)
class EngineDied:
    """The engine process ended without being asked. `detail` is the end of its stderr."""

    returncode: int
    detail: str

    @property
    def message(self) -> str:
        """What happened, in one sentence."""
        if self.returncode >= 0:
            return f"The engine process ended by itself (exit code {self.returncode})."
        name = _signal_name(-self.returncode)
        if name == "SIGKILL":
            return "The engine process was killed (SIGKILL), perhaps because memory ran out."
        return f"The engine process crashed ({name})."


class EngineClient:
    """One engine process at a time; `start` again after it ended gives a fresh one."""

    def __init__(self, command: Sequence[str] | None = None, *, log: Path | None = None) -> None:
        self._command = list(command) if command is not None else worker_command()
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._pump: asyncio.Task[None] | None = None
        self._received: asyncio.Queue[EngineMessage | EngineDied | None] = asyncio.Queue()
        self._closing = False

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while there is none."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as known."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process. Raises OSError when the command cannot be run."""
        assert not self.alive, "start() while an engine runs; close() it first"
        self._closing = False
        self._received = asyncio.Queue()
        stderr = _open_log(self._log)
        start_of_stderr = stderr.seek(0, os.SEEK_END)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=MAX_LINE,
                start_new_session=True,
            )
        except BaseException:
            stderr.close()
            raise
        self._pump = asyncio.create_task(self._read(self._process, stderr, start_of_stderr))

    def send(self, request: Request) -> None:
        """Queue a request; never blocks. A request to a dead engine is dropped: `messages` tells
        of the death."""
        if self._process is None or not self.alive:
            return
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.is_closing():
            stdin.write(encode(request))

    async def messages(self) -> AsyncIterator[EngineMessage | EngineDied]:
        """What the engine says, until it ends; `EngineDied` is last when nobody asked it to end.

        A line that is no message arrives as an `Error` of kind "protocol".
        """
        received = self._received
        while (message := await received.get()) is not None:
            yield message

    async def close(self, timeout: float = 0.5) -> None:
        """End the process: ask, then SIGTERM, then SIGKILL; `timeout` + 0.2 s and the reaping."""
        self._closing = True
        process, pump = self._process, self._pump
        if process is None or pump is None:
            return
        self.send(Quit())
        if process.stdin is not None:
            process.stdin.close()
        if not await _ended(pump, timeout):
            _signal(process.pid, signal.SIGTERM)
            if not await _ended(pump, 0.2):
                self.kill()
                # Nothing survives this; what takes time, on a busy machine, is to be told of it.
                await _ended(pump, 5.0)
        self._process = self._pump = None

    def kill(self) -> None:
        """SIGKILL to the engine and whatever it started; `messages` then ends with EngineDied
        unless `close` was called."""
        if self._process is not None and self.alive:
            _signal(self._process.pid, signal.SIGKILL)

    async def _read(
        self, process: asyncio.subprocess.Process, stderr: BinaryIO, start_of_stderr: int
    ) -> None:
        """Lines to messages until stdout ends, then the process's end."""
        received = self._received
        assert process.stdout is not None
        try:
            with contextlib.closing(stderr):
                while line := await _line(process.stdout):
                    message = _decode(line)
                    if not (isinstance(message, Step) and received.qsize() > CROWDED):
                        received.put_nowait(message)
                returncode = await _returncode(process)
                if not self._closing:
                    detail = _tail(stderr, start_of_stderr)
                    received.put_nowait(EngineDied(returncode, detail))
        finally:
            received.put_nowait(None)


def worker_command(*arguments: str) -> list[str]:
    """The command that starts `app.worker`."""
    return python_command("from app.worker import main; main()", *arguments)


def _decode(line: bytes) -> EngineMessage:
    try:
        return decode_engine(line)
    except ProtocolError as error:
        detail = f"{error}: {line[:200]!r}"
        return Error("protocol", "The engine wrote something that is no message.", detail=detail)


async def _line(stdout: asyncio.StreamReader) -> bytes:
    """The next line, b"" at the end. A line beyond MAX_LINE comes as a piece that is no message."""
    try:
        return await stdout.readline()
    except ValueError:
        return b"(a line that is too long)\n"


async def _returncode(process: asyncio.subprocess.Process) -> int:
    """Wait for the end; an engine that closed its stdout but lives on is of no use."""
    try:
        return await asyncio.wait_for(process.wait(), 1.0)
    except TimeoutError:
        _signal(process.pid, signal.SIGKILL)
        return await process.wait()


async def _ended(pump: asyncio.Task[None], timeout: float) -> bool:
    done, _ = await asyncio.wait([pump], timeout=timeout)
    return bool(done)


def _signal(pid: int, number: int) -> None:
    """To the process's group, which is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _open_log(log: Path | None) -> BinaryIO:
    """A file for the engine's stderr, appended to; a temporary one where `log` cannot be used."""
    if log is not None and ensure(log.parent):
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(log.with_name(log.name + ".1"))
            return open(log, "a+b")
    return tempfile.TemporaryFile("a+b")


def _tail(stderr: BinaryIO, start: int) -> str:
    try:
        end = stderr.seek(0, os.SEEK_END)
        stderr.seek(max(start, end - TAIL_BYTES))
        return stderr.read(TAIL_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
