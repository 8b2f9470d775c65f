"""Real terminals of several kinds, by tmux: what is drawn there, which keys arrive, whose the mouse
is."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.test_terminal import ROOT, Terminal, finished

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]


class Kind(Terminal):
    """A terminal that says of itself what `environment` says."""

    def __init__(self, home: Path, size: tuple[int, int] = (100, 30), **environment: str) -> None:
        super().__init__(home, size)
        words = {"ORL_CHAT_HOME": str(home), **environment}
        self._environment = " ".join(f"{name}={value}" for name, value in words.items())

    def run_program(self, *arguments: str) -> None:
        program = f"{sys.executable} -m app.cli {' '.join(arguments)}"
        home = f"env -u COLUMNS -u LINES -u COLORTERM {self._environment}"
        self.keys(f"clear; cd {ROOT}; {home} {program}; echo ended with $?", "Enter")

    def has_mouse(self) -> bool:
        return self.tmux("display-message", "-p", "#{mouse_any_flag}").strip() == "1"

    def colours(self) -> set[int]:
        """The foreground colours of the screen, of the sixteen."""
        found = re.findall(r"\x1b\[([0-9;]+)m", self.tmux("capture-pane", "-p", "-e"))
        numbers = {int(n) for codes in found for n in codes.split(";") if n}
        return {n for n in numbers if 30 <= n <= 37 or 90 <= n <= 97}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    os.system(f"tmux -S {tmp_path / 'tmux'} kill-server 2>{os.devnull}")


def test_a_dumb_terminal_is_refused_in_a_sentence(home: Path) -> None:
    terminal = Kind(home, TERM="dumb")
    terminal.start("--model", "demo")
    screen = " ".join(terminal.wait("ended with 1").split())
    assert "TERM=dumb" in screen
    assert "orl-chat ask PROMPT" in screen


def test_enter_sends_and_ctrl_j_breaks_the_line(home: Path) -> None:
    terminal = Kind(home)
    terminal.start("--model", "demo")
    terminal.wait("Ready")
    terminal.type("What is")
    terminal.keys("C-j")
    terminal.type("6 x 7?")
    terminal.wait(lambda screen: re.search(r"What is +│\n│ 6 x 7\?", screen) is not None)
    terminal.keys("Enter")
    assert "42" in terminal.wait(finished)


def test_sixteen_colours_show_how_sure_the_model_was(home: Path) -> None:
    terminal = Kind(home, TERM="xterm")
    terminal.start("--model", "demo")
    terminal.wait("Ready")
    terminal.type("What can you do?")
    terminal.keys("Enter")
    terminal.wait(finished)
    terminal.keys("F6")
    terminal.wait("Block 1 · step 1 of")
    assert "38;5" not in terminal.tmux("capture-pane", "-p", "-e")
    assert 92 in terminal.colours()  # bright green: sure


def test_a_c_locale_gets_ascii_only(home: Path) -> None:
    terminal = Kind(home, size=(60, 20), LC_ALL="C")
    terminal.start("--model", "demo")
    terminal.wait("Ready")
    terminal.type("What is 6 x 7?")
    terminal.keys("Enter")
    assert terminal.wait(lambda screen: "tok/s" in screen and " fwd" in screen).isascii()


def test_the_mouse_is_left_to_the_terminal_on_request(home: Path) -> None:
    terminal = Kind(home)
    terminal.start("--model", "demo")
    terminal.wait("Ready")
    assert terminal.has_mouse()
    terminal.keys("C-q")
    terminal.wait("ended with 0")
    terminal.run_program("--model", "demo", "--no-mouse")
    terminal.wait("Ready")
    assert not terminal.has_mouse()
    terminal.keys("C-q")
    terminal.wait("ended with 0")
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "config.toml").write_text("mouse = false\n")
    terminal.run_program("--model", "demo")
    terminal.wait("Ready")
    assert not terminal.has_mouse()


def test_the_window_changes_its_size_while_an_answer_is_written(home: Path) -> None:
    terminal = Kind(home)
    terminal.start("--model", "demo")
    terminal.wait("Ready")
    terminal.keys("C-t")
    terminal.wait("slow motion")
    terminal.type("What can you do?")
    terminal.keys("Enter")
    terminal.wait("step 1 ·")
    for columns, rows in ((60, 20), (200, 60), (80, 24)):
        terminal.tmux("resize-window", "-x", str(columns), "-y", str(rows))
        terminal.wait(lambda screen, wide=columns: "^p all" in screen and len(
            screen.splitlines()[-1].rstrip()) in range(wide - 2, wide + 1))  # fmt: skip
    terminal.wait("speed not measured")
    assert "62 tok" in terminal.screen()


def test_a_recording_is_shown_step_by_step(home: Path) -> None:
    recording = ROOT / "tests/app/tui/golden/answer.jsonl"
    terminal = Kind(home, size=(80, 24))
    terminal.start("replay", str(recording), "--tui")
    terminal.wait("Block 1 · step 1 of 2")
    terminal.keys("Down", "Right")
    terminal.wait("Block 2 · step 2 of 12")
    terminal.keys("q")
    terminal.wait("ended with 0")
