"""The other end of the pipe to a download process: start one, follow it, steer it, be rid of it.

    client = DownloadClient(log=paths().download_log)
    await client.start(Start("owner/name"))
    async for event in client.events():
        ...                                   # the last is Ready, Error, Cancelled, or Planned
    await client.close()

Neither huggingface_hub nor a thread is needed on this side; everything runs on the caller's event
loop. The process has a session of its own (a Ctrl+C in the terminal is not for it) and ends by
itself when its stdin closes, so nobody's end leaves it behind.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from app.child import python_command
from app.hub.messages import (
    Cancel,
    Cancelled,
    Event,
    Pause,
    Planned,
    Progress,
    Ready,
    Request,
    Resume,
    Start,
    decode_event,
    encode,
)
from app.hub.secret import Secret, scrub
from app.paths import ensure
from app.protocol import Error
from app.wire import MAX_LINE, ProtocolError

LOG_BYTES = 1_000_000
TAIL_BYTES = 4000
CROWDED = 64
"""Events waiting to be read beyond which progress is dropped."""


class DownloadClient:
    """One download process."""

    def __init__(
        self,
        *,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """`environment` is laid over this process's own; `log` takes the process's stderr."""
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._command = list(command) if command is not None else downloader_command()
        self._process: asyncio.subprocess.Process | None = None
        self._pump: asyncio.Task[None] | None = None
        self._received: asyncio.Queue[Event | None] = asyncio.Queue()
        self._token: Secret | None = None

    @property
    def pid(self) -> int | None:
        """The process's id, None while there is none."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as known."""
        return self._process is not None and self._process.returncode is None

    async def start(self, start: Start) -> None:
        """Begin. Raises OSError when the process cannot be made."""
        assert self._process is None, "a client starts one download; make another for the next"
        self._token = Secret(start.token) if start.token else None
        stderr = _open_log(self._log)
        begun = stderr.seek(0, os.SEEK_END)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                limit=MAX_LINE,
                start_new_session=True,
            )
        except BaseException:
            stderr.close()
            raise
        self._pump = asyncio.create_task(self._read(self._process, stderr, begun))
        self._send(start)

    async def events(self) -> AsyncIterator[Event]:
        """What the process says, until it ends. When it ends without a last word (it was killed),
        an `Error` of kind "died" is that."""
        while (event := await self._received.get()) is not None:
            yield event

    def pause(self) -> None:
        """Ask for no more bytes."""
        self._send(Pause())

    def resume(self) -> None:
        """Go on after a pause."""
        self._send(Resume())

    def cancel(self) -> None:
        """End it; what came stays. `Cancelled` follows as the last event."""
        self._send(Cancel())

    async def close(self, timeout: float = 2.0) -> None:
        """Be rid of the process, whatever it does; takes little more than `timeout` seconds."""
        process, pump = self._process, self._pump
        if process is None or pump is None:
            return
        self.cancel()
        if process.stdin is not None:
            process.stdin.close()
        done, _ = await asyncio.wait([pump], timeout=timeout)
        if not done:
            self.kill()
            await asyncio.wait([pump], timeout=1.0)

    def kill(self) -> None:
        """SIGKILL; the parts stay good."""
        if self._process is not None and self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, request: Request) -> None:
        if self._process is None or not self.alive:
            return
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.is_closing():
            stdin.write(encode(request))

    async def _read(
        self, process: asyncio.subprocess.Process, stderr: BinaryIO, begun: int
    ) -> None:
        """Lines to events until stdout ends, then the process's end."""
        assert process.stdout is not None
        last: Event | None = None
        try:
            with contextlib.closing(stderr):
                while line := await _line(process.stdout):
                    event = self._decode(line)
                    if not isinstance(event, Progress):
                        last = event
                    elif self._received.qsize() > CROWDED:
                        continue
                    self._received.put_nowait(event)
                code = await process.wait()
                if not _is_last(last, code):
                    detail = scrub(_tail(stderr, begun), self._token)
                    self._received.put_nowait(_died(code, detail))
        finally:
            self._received.put_nowait(None)

    def _decode(self, line: bytes) -> Event:
        try:
            return decode_event(line)
        except ProtocolError as error:
            detail = scrub(f"{error}: {line[:200]!r}", self._token)
            return Error(
                "protocol", "The download process wrote something that is no event.", "", detail
            )


def network_environment(*, endpoint: str | None = None, offline: bool = False) -> dict[str, str]:
    """The environment that the user's settings make for a download; what they leave open stays
    as it is."""
    environment = {}
    if endpoint:
        environment["HF_ENDPOINT"] = endpoint
    if offline:
        environment["HF_HUB_OFFLINE"] = "1"
    return environment


def downloader_command() -> list[str]:
    """The command that starts `app.downloader`."""
    return python_command("from app.downloader import main; main()")


def _is_last(event: Event | None, code: int) -> bool:
    return isinstance(event, Ready | Cancelled | Error) or (
        isinstance(event, Planned) and code == 0
    )


def _died(code: int, detail: str) -> Error:
    if code == -signal.SIGKILL:
        how = "was killed (SIGKILL)"
    elif code < 0:
        how = f"crashed (signal {-code})"
    else:
        how = f"ended by itself (exit code {code})"
    hint = "Start it again: it goes on where it was."
    return Error("died", f"The download process {how}.", hint, detail)


async def _line(stdout: asyncio.StreamReader) -> bytes:
    """The next line, b"" at the end. A line beyond MAX_LINE comes as a piece that is no event."""
    try:
        return await stdout.readline()
    except ValueError:
        return b"(a line that is too long)\n"


def _open_log(log: Path | None) -> BinaryIO:
    """A file for the process's stderr, appended to; a temporary one where `log` cannot be used."""
    if log is not None and ensure(log.parent):
        with contextlib.suppress(OSError):
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(log.with_name(log.name + ".1"))
            return open(log, "a+b")
    return tempfile.TemporaryFile("a+b")


def _tail(stderr: BinaryIO, begun: int) -> str:
    try:
        end = stderr.seek(0, os.SEEK_END)
        stderr.seek(max(begun, end - TAIL_BYTES))
        return stderr.read(TAIL_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
