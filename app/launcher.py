"""Runs the screens in a child process, so that somebody is left to mend the terminal.

A program that is killed leaves the terminal in raw mode, on its second screen, with mouse reports
on: a shell that echoes nothing and types rubbish. The process that a shell waits for is therefore
this one, which does nothing but wait; it forks before anything is imported, which takes a
millisecond. Signals that mean the program go on to it. Should this process be killed, the screens
quit as by SIGTERM.
"""

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from app.commands.running import say

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
RESTORE = (
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    "\x1b[?2004l\x1b[?2048l\x1b[?2026l\x1b[?1004l"  # paste, resize, synchronised, focus reports
    "\x1b[<u\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0m"  # keys, second screen, wrapping, cursor, colours
)
KILLED = "orl-chat was killed ({}). Messages and finished blocks are kept; start it again."


def in_child(run: Callable[[], int]) -> int:
    """The exit code of `run`, which happens in a child process; 128 + N when signal N killed it,
    and the terminal is then as it was."""
    modes = termios.tcgetattr(sys.stdin)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        threading.Thread(target=_quit_with_parent, args=(reading,), daemon=True).start()
        return run()
    os.close(reading)
    before = {number: signal.signal(number, _forward_to(child)) for number in FORWARDED}
    try:
        status = _wait(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    killer = os.WTERMSIG(status)
    _restore(modes)
    say(KILLED.format(signal.Signals(killer).name))
    return 128 + killer


def _wait(child: int) -> int:
    """The child's status once it is over; when it is stopped (Ctrl+Z), so is this process."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(os.getpid(), signal.SIGSTOP)  # what makes it go on goes to the whole job


def _forward_to(child: int) -> Callable[[int, FrameType | None], None]:
    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    return forward


def _quit_with_parent(pipe: int) -> None:
    """Nothing is ever written into `pipe`: reading it ends when the other process does."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _restore(modes: list[Any]) -> None:
    """What a terminal driver does at its end; keys and mouse reports nobody read are dropped."""
    with contextlib.suppress(OSError, termios.error):
        os.write(sys.stdout.fileno(), RESTORE.encode())
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, modes)
