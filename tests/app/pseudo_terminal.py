"""The program on a pseudo-terminal: everything it writes is read at once and kept."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
CHAT = ("-m", "app.cli", "--model", "demo")


class PseudoTerminal:
    """A terminal of its own session with one Python process in it.

    `written` is all that the terminal got so far. The slave side stays open here, as a shell's
    would, so its modes can be read after the program is gone.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        home: Path,
        *,
        size: tuple[int, int] = (110, 34),
        **environment: str,
    ) -> None:
        self._master, self._slave = pty.openpty()
        columns, rows = size
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._written = bytearray()
        self._closed = False
        outside = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.modes_before = self.modes
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={
                **outside, "ORL_CHAT_HOME": str(home), "TERM": "xterm-256color", **environment,
            },
            stdin=self._slave, stdout=self._slave, stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._changed = threading.Condition()
        self._wake, self._waker = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def modes(self) -> list[Any]:
        """What `stty` would print."""
        return termios.tcgetattr(self._slave)

    @property
    def written(self) -> bytes:
        """Everything so far."""
        return bytes(self._written)

    @property
    def family(self) -> list[psutil.Process]:
        """The program and all that it started."""
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def find(self, part: str) -> psutil.Process:
        """The family's latest process with `part` in its command line."""
        return [p for p in self.family if part in " ".join(p.cmdline())][-1]

    def send(self, keys: str) -> int:
        """Type; the place in `written` from which to look for what it leads to."""
        place = len(self._written)
        os.write(self._master, keys.encode())
        return place

    def wait(self, wanted: bytes, since: int = 0) -> float:
        """Wait until `wanted` is written; the time of that by the performance counter."""

        def seen() -> bool:
            return self._written.find(wanted, since) >= 0

        with self._changed:
            if not self._changed.wait_for(seen, PATIENCE):
                raise AssertionError(f"never written: {wanted!r}; {self.written[-3000:]!r}")
        return time.perf_counter()

    def hang_up(self) -> None:
        """The terminal goes away: the kernel sends SIGHUP."""
        os.write(self._waker, b"x")
        self._reader.join()
        for descriptor in (self._slave, self._master, self._wake, self._waker):
            os.close(descriptor)
        self._closed = True

    def close(self) -> None:
        """End what still runs."""
        with contextlib.suppress(psutil.Error):
            for process in self.family:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        self.process.wait()
        if not self._closed:
            self.hang_up()

    def _read(self) -> None:
        while self._wake not in (ready := select.select([self._master, self._wake], [], [])[0]):
            if self._master in ready:
                piece = os.read(self._master, 65536)
                with self._changed:
                    self._written += piece
                    self._changed.notify_all()


@contextlib.contextmanager
def pseudo_terminal(
    arguments: Sequence[str], home: Path, **options: Any
) -> Iterator[PseudoTerminal]:
    """A terminal with the program; nothing of it is left afterwards."""
    terminal = PseudoTerminal(arguments, home, **options)
    try:
        yield terminal
    finally:
        terminal.close()
