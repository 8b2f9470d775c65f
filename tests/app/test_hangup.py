"""A terminal that goes away, on a real pseudo-terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


def read_until(master: int, wanted: bytes) -> None:
    seen, until = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        assert time.monotonic() < until, seen[-2000:]
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(False, id="while it waits", marks=pytest.mark.slow),
        pytest.param(True, id="while it draws"),
    ],
)
def test_a_terminal_that_goes_away_ends_both_processes(tmp_path: Path, busy: bool) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 110, 0, 0))
    program = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "--model", "demo"],
        cwd=ROOT,
        env={**os.environ, "ORL_CHAT_HOME": str(tmp_path), "TERM": "xterm-256color"},
        stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    try:
        read_until(master, b"Ready")
        if busy:
            os.write(master, b"What can you do?\r")
            time.sleep(0.2)  # somewhere in the answer, and whatever it draws by then
        family = [psutil.Process(program.pid), *psutil.Process(program.pid).children()]
        os.close(master)  # the kernel sends SIGHUP to the session
        assert program.wait(PATIENCE) in (0, 129)
        assert not psutil.wait_procs(family, timeout=10)[1]
    finally:
        program.kill()
        program.wait()
