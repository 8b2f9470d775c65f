"""Killed programs, two windows, full disks, homes that cannot be written, and crashes: real
processes on pseudo-terminals, with the demo or with an engine that streams as fast as a GPU's."""

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.child import python_command
from app.store import Store
from tests.app.pseudo_terminal import CHAT, PATIENCE, pseudo_terminal
from tests.app.test_hangup import is_restored, screens

ROUNDS = 20
SPIED = """
import json, os, sys
from app import cli
from app.tui.session import ChatSession

spy = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def told(method):
    def wrapped(self, *arguments):
        result = method(self, *arguments)
        said = [[e.role, e.content] for e in self.conversation.entries]
        os.write(spy, json.dumps(said).encode() + b"\\n")
        return result
    return wrapped

ChatSession.ask = told(ChatSession.ask)
ChatSession.handle = told(ChatSession.handle)
cli.main()
"""
"""The program, noting after each message what the chat on screen then holds."""
FAST = """
import sys
from app.tui.app import run
raise SystemExit(run("demo", engine=sys.argv[1:]))
"""
SECRET = "hf_" + "thisisasecretthatnobodymaysee"
CRASHING = f"""
import sys
from app import cli
from app.tui.screens.chat import ChatScreen

def crash(self):
    token = "{SECRET}"
    messages = [dict(token=token)]
    raise ValueError("boom")

async def crash_later(self):
    self.run_worker(self.crash_in_worker())

async def crash_in_worker(self):
    token = "{SECRET}"
    raise ValueError("boom")

ChatScreen.crash_in_worker = crash_in_worker
ChatScreen.action_block_view = crash if sys.argv.pop(1) == "key" else crash_later
cli.main()
"""
CRASHING_ENGINE = f"""
from app import worker
from app.replay import ReplayBackend

def chat(self, request):
    token = "{SECRET}"
    raise ValueError("boom")

ReplayBackend.chat = chat
worker.main()
"""


def last_said(spy: Path) -> list[list[str]]:
    """What the program held when it last noted it; a line that was cut off does not count."""
    whole = [line for line in spy.read_bytes().split(b"\n")[:-1] if line] if spy.exists() else []
    return json.loads(whole[-1]) if whole else []


def stored(home: Path) -> list[list[list[str]]]:
    """Every chat as [role, text] pairs, the newest first."""
    store = Store.open(home / "data" / "chats.db")
    try:
        assert store.notice is None
        return [[[m.role, m.content] for m in store.messages(chat.id)] for chat in store.chats()]
    finally:
        store.close()


def covers(kept: list[list[str]], said: list[list[str]]) -> bool:
    """Every message is there, and each answer has at least the text that it had."""
    return len(kept) >= len([m for m in said if m[1]]) and all(
        have[0] == had[0] and have[1].startswith(had[1])
        for have, had in zip(kept, said, strict=False)
    )


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_no_message_and_no_block(tmp_path: Path) -> None:
    random_ = random.Random(7)
    blocks = 0
    for number in range(ROUNDS):
        spy, whom = tmp_path / f"spy-{number}", ("screens", "engine")[number % 2]
        program = ("-c", SPIED, str(spy), "--model", "demo")
        with pseudo_terminal(program, tmp_path) as terminal:
            terminal.wait(b"Ready")
            if number:
                terminal.wait(f"Round {number - 1}".encode())  # among the recent chats
            terminal.send(f"Round {number}: what can you do?\r")
            time.sleep(random_.uniform(0.0, 1.5))
            if whom == "screens":
                screens(terminal).kill()
                assert terminal.process.wait(PATIENCE) == 137
                assert is_restored(terminal)
            else:
                place = terminal.send("")
                terminal.find("app.worker").kill()
                terminal.wait(b"The engine stopped", place)
                terminal.send("\x11")
                assert terminal.process.wait(PATIENCE) == 0
        said = last_said(spy)
        blocks += sum(role == "assistant" and bool(text) for role, text in said)
        assert not said or covers(stored(tmp_path)[0], said), (number, whom, said)
        if not said:  # killed before Enter was read: the next round looks for it
            store = Store.open(tmp_path / "data" / "chats.db")
            store.add_message(store.create_chat(), "user", f"Round {number}")
            store.close()
    assert blocks > ROUNDS / 4  # or nothing was tested


@pytest.mark.slow
def test_two_windows_on_one_store_lose_nothing(tmp_path: Path) -> None:
    engine = [sys.executable, "-m", "tests.benchmarks.paced_engine", "3000", "1600"]
    windows = ("left", "right")
    with contextlib.ExitStack() as stack:
        terminals = {
            name: stack.enter_context(
                pseudo_terminal(("-c", FAST, *engine, str(tmp_path / name)), tmp_path)
            )
            for name in windows
        }
        for terminal in terminals.values():
            terminal.wait(b"Ready")
        for turn in range(3):
            for name, terminal in terminals.items():
                terminal.send(f"{name} {turn}\r")
            for name in windows:
                wait_for_lines(tmp_path / name, turn + 1)
            time.sleep(1.0)  # until both have drawn the end and take the next question
        for terminal in terminals.values():
            terminal.send("\x11")
            assert terminal.process.wait(PATIENCE) == 0
            for complaint in (b"locked", b"not saved", b"Another window", b"no longer saved"):
                assert complaint not in terminal.written
    chats = stored(tmp_path)
    assert sorted(chat[0][1] for chat in chats) == ["left 0", "right 0"]
    for chat in chats:
        name = chat[0][1].split()[0]
        assert [text for role, text in chat if role == "user"] == [f"{name} {i}" for i in range(3)]
        answers = [text for role, text in chat if role == "assistant"]
        assert len(answers) == 3
        assert len(set(answers)) == 1
        assert len(answers[0]) > 3000


def wait_for_lines(path: Path, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < until, f"{path} never had {count} lines"
        time.sleep(0.02)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 3 MB at `folder`."""
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Until nothing fits any more."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a small disk", "a limit"])
def test_a_disk_that_fills_up_is_said_and_the_chat_goes_on(tmp_path: Path, how: str) -> None:
    with contextlib.ExitStack() as stack:
        if how == "a small disk":
            stack.enter_context(small_disk(tmp_path))
        with pseudo_terminal(CHAT, tmp_path) as terminal:
            terminal.wait(b"Ready")
            terminal.wait(b"Last answer", terminal.send("What is 6 x 7?\r"))
            if how == "a small disk":
                fill(tmp_path)
            else:
                size = (tmp_path / "data" / "chats.db-wal").stat().st_size
                screens(terminal).rlimit(psutil.RLIMIT_FSIZE, (size, size))
            place = terminal.send("What can you do?\r")
            terminal.wait(b"no longer saved", place)
            terminal.wait(b"Last answer", place)
            terminal.send("\x11")
            assert terminal.process.wait(PATIENCE) == 0
            assert is_restored(terminal)
            (tmp_path / "filler").unlink(missing_ok=True)
        assert stored(tmp_path)[0][0] == ["user", "What is 6 x 7?"]
        assert "42" in stored(tmp_path)[0][1][1]


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_said_and_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here is no folder")
    with pseudo_terminal(CHAT, tmp_path / "file") as terminal:
        terminal.wait(b"kept in memory only")
        terminal.wait(b"Ready")
        terminal.wait(b"Last answer", terminal.send("What is 6 x 7?\r"))
        terminal.send("\x11")
        assert terminal.process.wait(PATIENCE) == 0
        assert is_restored(terminal)
        assert b"Traceback" not in terminal.written


@pytest.mark.parametrize("where", ["key", pytest.param("worker", marks=pytest.mark.slow)])
def test_a_crash_shows_a_sentence_and_nobodys_secrets(tmp_path: Path, where: str) -> None:
    with pseudo_terminal(("-c", CRASHING, where, "--model", "demo"), tmp_path) as terminal:
        terminal.wait(b"Ask something")
        terminal.wait(b"Ready")
        terminal.send("\x14")
        terminal.wait(b"orl-chat stopped because of an error in it")
        assert terminal.process.wait(PATIENCE) == 1
        assert is_restored(terminal)
        assert b"Traceback" not in terminal.written
        assert SECRET.encode() not in terminal.written
    logs = all_logs(tmp_path)
    assert "ValueError: boom" in logs
    assert SECRET not in logs


@pytest.mark.slow
def test_a_crash_in_the_engine_shows_nobodys_secrets(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_text('{"trace": 1}\n{"t": 0, "type": "chat", "id": "a", "messages": []}\n')
    engine = python_command(CRASHING_ENGINE, "--replay", str(trace))
    with pseudo_terminal(("-c", FAST, *engine), tmp_path) as terminal:
        terminal.wait(b"Ready")
        place = terminal.send("hello\r")
        terminal.wait(b"could not be finished", place)
        terminal.send("\x0c")
        terminal.wait(b"boom", place)
        terminal.send("\x11")
        assert terminal.process.wait(PATIENCE) == 0
        assert SECRET.encode() not in terminal.written
    assert "boom" in all_logs(tmp_path)
    assert SECRET not in all_logs(tmp_path)


def all_logs(home: Path) -> str:
    return "\n".join(path.read_text() for path in (home / "state" / "log").iterdir())
