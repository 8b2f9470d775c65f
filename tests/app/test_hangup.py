"""A terminal that goes away, a program that is told to end or is killed, on a real terminal."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.app.pseudo_terminal import CHAT, PATIENCE, PseudoTerminal, pseudo_terminal

MODES_OFF = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l")


def screens(terminal: PseudoTerminal) -> psutil.Process:
    """The process that draws: the child of the one that waits."""
    (child,) = psutil.Process(terminal.process.pid).children()
    return child


def is_restored(terminal: PseudoTerminal) -> bool:
    """Modes as they were, and every switch of the terminal last turned off."""
    written = terminal.written
    switched = [(off, off[:-1] + (b"h" if off.endswith(b"l") else b"l")) for off in MODES_OFF]
    return terminal.modes == terminal.modes_before and all(
        written.rfind(off) > written.rfind(on) for off, on in switched
    )


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(False, id="while it waits", marks=pytest.mark.slow),
        pytest.param(True, id="while it draws"),
    ],
)
def test_a_terminal_that_goes_away_ends_every_process(tmp_path: Path, busy: bool) -> None:
    with pseudo_terminal(CHAT, tmp_path) as terminal:
        terminal.wait(b"Ready")
        if busy:
            terminal.send("What can you do?\r")
            time.sleep(0.2)  # somewhere in the answer, and whatever it draws by then
        family = terminal.family
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) in (0, 129)
        assert not psutil.wait_procs(family, timeout=10)[1]


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="kill"),
        pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.slow),
        pytest.param(signal.SIGSEGV, id="segv", marks=pytest.mark.slow),
    ],
)
def test_whatever_ends_the_screens_the_terminal_is_as_it_was(tmp_path: Path, number: int) -> None:
    with pseudo_terminal(CHAT, tmp_path) as terminal:
        terminal.wait(b"Ready")
        family = terminal.family
        assert terminal.modes != terminal.modes_before
        os.kill(screens(terminal).pid, number)
        code = terminal.process.wait(PATIENCE)
        assert not psutil.wait_procs(family, timeout=10)[1]
        if number != signal.SIGTERM:
            terminal.wait(f"orl-chat was killed ({signal.Signals(number).name})".encode())
        assert is_restored(terminal)
        assert code == (0 if number == signal.SIGTERM else 128 + number)


def test_sigterm_to_the_process_that_waits_ends_the_screens(tmp_path: Path) -> None:
    with pseudo_terminal(CHAT, tmp_path) as terminal:
        terminal.wait(b"Ready")
        family = terminal.family
        terminal.process.terminate()
        assert terminal.process.wait(PATIENCE) == 0
        assert not psutil.wait_procs(family, timeout=10)[1]
        assert is_restored(terminal)
