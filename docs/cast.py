"""Records the real program in a terminal of its own, with real keys and the demo model.

python docs/cast.py, then asciinema play docs/orl-chat.cast (format: docs.asciinema.org, v2)
"""

import codecs
import fcntl
import json
import os
import platform
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from screenshots import FIRST, HERE, QUESTION

ROOT = HERE.parent
SIZE = (100, 30)
LONGEST_WAIT = 90.0
TYPING = 0.07
"""Seconds between two letters."""
IDLE = 2.0
"""Seconds that a player should wait at most while nothing changes."""
ENTER, ESCAPE, CTRL_T, CTRL_Q = "\r", "\x1b", "\x14", "\x11"
F2, F3, F4, F5, F6 = "\x1bOQ", "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~"
LEFT, RIGHT = "\x1b[D", "\x1b[C"
COMPILED = shutil.ignore_patterns("__pycache__")
CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\[\]]")
PARTS = re.compile(rf"{CONTROLS.pattern}|[^\x1b]+|\x1b")
STYLE, MOVE = re.compile(r"\x1b\[([0-9;]*)m"), re.compile(r"\x1b\[[0-9;]*H")


class Styles:
    """Says the same with fewer bytes: a style is set where something is written in it, and not
    reset and set again between two cells that share it."""

    def __init__(self) -> None:
        self._wanted = self._current = self._rest = ""

    def shorten(self, text: str) -> str:
        """What comes next; half a sequence at its end waits for the other half."""
        text = self._rest + text
        end = text.rfind("\x1b")
        cut = end if end >= 0 and not CONTROLS.match(text, end) else len(text)
        text, self._rest = text[:cut], text[cut:]
        return "".join(map(self._part, PARTS.findall(text)))

    def _part(self, part: str) -> str:
        if MOVE.fullmatch(part):
            return part
        if style := STYLE.fullmatch(part):
            numbers = style[1] or "0"
            self._wanted = "" if numbers == "0" else f"{self._wanted};{numbers}"
            return ""
        if self._wanted == self._current:
            return part
        self._current = self._wanted
        return f"\x1b[0{self._wanted}m{part}"


class Recorder:
    """A pseudo-terminal with the program in it; `events` are [seconds, "o", text]."""

    def __init__(self, home: Path) -> None:
        self.events: list[tuple[float, str, str]] = []
        self._new = ""
        self._styles = Styles()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.execve(sys.executable, [sys.executable, "-m", "app.cli"], environment(home))
        columns, rows = SIZE
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._begin = time.monotonic()

    def watch(self, seconds: float) -> None:
        """Let time go by."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._read(left):
            pass

    def until(self, words: str) -> None:
        """Wait for words that were not there when the last key was pressed."""
        end = time.monotonic() + LONGEST_WAIT
        while words not in (shown := CONTROLS.sub("", self._new)):
            if not self._read(max(0.0, end - time.monotonic())):
                raise SystemExit(f"never shown: {words!r}; the last was {shown[-2000:]!r}")

    def press(self, key: str, words: str = "", seconds: float = 0.0) -> None:
        """A key; then wait for what it leads to, and look at that for a while."""
        self._new = ""
        os.write(self._master, key.encode())
        self.until(words)
        self.watch(seconds)

    def type(self, text: str) -> None:
        """Type like a person."""
        for letter in text:
            self.press(letter, seconds=TYPING)

    def end(self) -> None:
        """Read to the program's end."""
        while self._read(LONGEST_WAIT):
            pass
        os.waitpid(self.pid, 0)
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        """What comes next; False when nothing does in that time, or ever."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program has ended
            return False
        text = self._decoder.decode(data)
        self._new += text
        self.events.append(
            (round(time.monotonic() - self._begin, 3), "o", self._styles.shorten(text))
        )
        return bool(data)


def environment(home: Path) -> dict[str, str]:
    """Nothing of the person who records."""
    return {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(home / "orl-chat"),
        "LANG": "C.UTF-8", "TERM": "xterm-256color",
    }  # fmt: skip


def play(it: Recorder) -> None:
    """First start, two answers, the tabs, and out."""
    it.until("Demo model")
    it.watch(3)
    it.press(ENTER, "Ready", 1)
    it.type(FIRST)
    it.press(ENTER, "tok/s", 2)
    it.press(CTRL_T, seconds=0.5)  # slow motion
    it.type(QUESTION)
    it.press(ENTER, "fwd", 2)
    it.press(F6, "replay", 1.5)
    it.press(" ", "playing", 3)
    it.press(ESCAPE, seconds=1)
    it.press(F3, "Answer", 3)
    it.press(LEFT, "1 of 2", 2)
    it.press(F4, "Finetune", 1.5)
    it.press("d", "Ready: s begins", 2)
    it.press("t", "with pass", 3)
    it.press(F5, "Settings", 3)
    it.press(F2, seconds=1.5)
    it.press(CTRL_Q)
    it.end()


def main() -> None:
    """Record, and refuse what would tell of this machine."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        for part in ("app", "engine", "finetune", "assets"):  # it shows where it lies
            shutil.copytree(ROOT / part, Path(home) / "orl-chat" / part, ignore=COMPILED)
        it = Recorder(Path(home))
        play(it)
    said = "".join(text for _, _, text in it.events)
    for name in (str(ROOT), str(Path.home()), platform.node()):
        if name in said:
            raise SystemExit(f"{name!r} of this machine was shown, so nothing is written")
    columns, rows = SIZE
    header = {
        "version": 2, "width": columns, "height": rows, "idle_time_limit": IDLE,
        "title": "orl-chat with its demo model", "env": {"TERM": "xterm-256color"},
    }  # fmt: skip
    lines = [json.dumps(header), *(json.dumps(e, ensure_ascii=False) for e in it.events)]
    (HERE / "orl-chat.cast").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
