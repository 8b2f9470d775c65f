"""Journeys in a real terminal: tmux types the keys and reads the screen, the demo answers.

Nothing is measured here; waiting is generous, and what is asserted is what the user sees, what
lies in the store, and which processes live.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Terminal:
    """A tmux session of its own server, with the program's home in a folder of its own."""

    def __init__(self, home: Path, size: tuple[int, int] = (110, 34)) -> None:
        self._socket = str(home / "tmux")
        self._home = home
        self._size = size

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", os.devnull, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def start(self, *arguments: str) -> None:
        """Run orl-chat in a shell, which stays when the program ends."""
        columns, rows = self._size
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")
        self.run_program(*arguments)

    def run_program(self, *arguments: str) -> None:
        # Without the caller's idea of a size, which would outweigh the pane's.
        home = f"env -u COLUMNS -u LINES ORL_CHAT_HOME={self._home}"
        program = f"{home} {sys.executable} -m app.cli {' '.join(arguments)}"
        self.keys(f"clear; cd {ROOT}; {program}; echo ended with $?", "Enter")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait(self, wanted: str | Callable[[str], bool]) -> str:
        """The screen, once it shows `wanted`."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            screen = self.screen()
            if wanted(screen) if callable(wanted) else wanted in screen:
                return screen
            time.sleep(0.05)
        raise AssertionError(f"never seen: {wanted}\n{self.screen()}")

    def processes(self) -> list[psutil.Process]:
        """The program's processes, the engine's among them."""
        pane = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        return psutil.Process(pane).children(recursive=True)

    def engine(self) -> psutil.Process:
        return next(p for p in self.processes() if "app.worker" in " ".join(p.cmdline()))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    it = Terminal(tmp_path)
    it.start("--model", "demo")
    yield it
    subprocess.run(["tmux", "-S", str(tmp_path / "tmux"), "kill-server"], check=False)


def finished(screen: str) -> bool:
    """The line of figures under an answer, which also counts the tokens, is there."""
    return re.search(r"\d+ tok · .*TPF .* fwd", screen) is not None


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=5)
    return not alive


def test_first_start_question_quit_and_start_again(terminal: Terminal) -> None:
    terminal.wait("Ready")
    terminal.type("What is 6 x 7?")
    terminal.keys("Enter")
    answered = terminal.wait(finished)
    assert "42" in answered
    assert "tok/s" in answered
    assert "TPF" in answered
    processes = terminal.processes()
    assert len(processes) >= 2
    terminal.keys("C-q")
    terminal.wait("ended with 0")
    assert gone(processes)
    terminal.run_program("--model", "demo")
    terminal.wait("What is 6 x 7?")  # among the recent chats
    terminal.keys("C-o")
    terminal.wait(lambda screen: "Search titles" in screen and "I split 7" in screen)
    terminal.keys("Enter")
    terminal.wait(lambda screen: "42" in screen and finished(screen))


def test_nothing_chosen_yet_the_demo_is_one_enter_away(tmp_path: Path) -> None:
    """The real doctor in its process, the real demo behind the choice, which is kept."""
    terminal = Terminal(tmp_path, size=(60, 20))
    terminal.start()
    try:
        terminal.wait("Which model?")
        terminal.wait("\u203a Use the demo")
        terminal.wait(lambda screen: "the demo model runs" in " ".join(screen.split()))
        terminal.keys("Enter")
        terminal.wait("Ready")
        terminal.keys("C-p")
        terminal.wait("Search")
        terminal.type("Models")
        terminal.wait("check the machine")
        terminal.keys("Enter")
        terminal.wait("now: demo")
        terminal.keys("Escape")
        terminal.wait("Ready")
        processes = terminal.processes()
        terminal.keys("C-q")
        terminal.wait("ended with 0")
        assert gone(processes)
        terminal.run_program()
        assert "Which model?" not in terminal.wait("Ready")
    finally:
        terminal.tmux("kill-server")


def test_numbers_change_and_esc_keeps_the_text(terminal: Terminal) -> None:
    terminal.wait("Ready")
    terminal.keys("C-t")  # slow motion: there is a middle to stop in
    terminal.wait("slow motion")
    terminal.type("What can you do?")
    terminal.keys("Enter")
    first = terminal.wait("step 1 ·")
    terminal.wait(lambda screen: "step 2 ·" in screen or "Block 2" in screen)
    terminal.keys("Escape")
    stopped = terminal.wait("stopped")
    assert "░░░" in first
    assert "What can you do?" in stopped
    terminal.keys("C-t", "C-t")
    terminal.type("What is 6 x 7?")
    terminal.keys("Enter")
    terminal.wait("42")


def test_a_killed_engine_loses_nothing(terminal: Terminal) -> None:
    terminal.wait("Ready")
    terminal.keys("C-t")
    terminal.wait("slow motion")
    terminal.type("What can you do?")
    terminal.keys("Enter")
    terminal.wait("Block 2")
    os.kill(terminal.engine().pid, signal.SIGKILL)
    broken = terminal.wait("Restart")
    assert "What can you do?" in broken
    terminal.keys("C-t", "C-t")
    terminal.keys("Enter")  # Restart has the focus
    terminal.wait("Ready")
    terminal.keys("C-r")
    terminal.wait(finished)


def test_a_closed_terminal_leaves_no_process(terminal: Terminal) -> None:
    terminal.wait("Ready")
    processes = terminal.processes()
    terminal.tmux("kill-session")
    assert gone(processes)


def test_after_kill_9_the_shell_is_as_it_was(terminal: Terminal) -> None:
    terminal.wait("Ready")
    processes = terminal.processes()
    waiting = next(p for p in processes if "app.cli" in " ".join(p.cmdline()))
    (screens,) = waiting.children()
    screens.kill()
    terminal.wait("ended with 137")
    assert gone(processes)
    terminal.type("echo $((20 + 22))")
    terminal.wait("echo $((20 + 22))")  # the shell echoes what is typed
    terminal.keys("Enter")
    assert "orl-chat  " not in terminal.wait(lambda screen: "42" in screen.split())
    flags = "#{mouse_any_flag}#{alternate_on}#{cursor_flag}"
    assert terminal.tmux("display-message", "-p", flags).strip() == "001"
