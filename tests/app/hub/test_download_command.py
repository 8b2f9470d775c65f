"""`orl-chat download`: what stands where, exit codes, Ctrl+C; and a download from inside the
terminal program."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.cli import run
from app.commands.download import event_lines, progress_line
from app.hub.client import DownloadClient
from app.hub.manifest import cached
from app.hub.messages import Event, Planned, Progress, Ready, Start
from tests.app.hub.conftest import REPO
from tests.app.hub.hub_server import FakeHub

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "app.cli", "download", REPO]
SLOW = 250_000.0


def test_the_folder_on_stdout_the_rest_on_stderr(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["download", REPO]) == 0
    done = capsys.readouterr()
    assert f"{REPO} at {hub.branches['main'][:7]} · 920 kB in 11 files · apache-2.0" in done.err
    assert "920 kB to fetch" in done.err
    assert done.out == f"{cached(REPO)}\n"
    assert "Ready: 920 kB, every file checked (920 kB fetched in " in done.err
    assert "Traceback" not in done.err
    assert run(["download", REPO, "--json"]) == 0
    lines = capsys.readouterr()
    assert lines.err == ""
    events = [json.loads(line) for line in lines.out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "progress"][:2] == [
        "started", "plan",
    ]  # fmt: skip
    assert events[-1] | {"elapsed": 0} == {
        "type": "ready", "repo": REPO, "revision": "main", "commit": hub.branches["main"],
        "path": str(cached(REPO)), "total": 920231, "fetched": 0, "elapsed": 0,
    }  # fmt: skip


def test_a_failure_is_a_sentence(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.private = True
    assert run(["download", REPO]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith(f"{REPO} is private, or there is no repository of that name. ")
    assert run(["download", "nonsense"]) == 1
    assert "is not the name of a repository" in capsys.readouterr().err


@pytest.mark.slow
def test_the_settings_say_where_and_whether(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.setenv("ORL_CHAT_ENDPOINT", hub.endpoint)
    assert run(["download", REPO, "--dry-run"]) == 0
    planned = capsys.readouterr()
    assert planned.out == ""
    assert f"from {hub.endpoint[7:]}" in planned.err
    assert "920 kB to fetch" in planned.err
    assert not hub.bodies()
    monkeypatch.setenv("ORL_CHAT_OFFLINE", "1")
    assert run(["download", REPO]) == 1
    assert "Offline mode is on" in capsys.readouterr().err


def largest_part(cache: Path) -> int:
    """Bytes; parts that are finished or moved between listing and looking count as nothing."""
    sizes = [0]
    for path in cache.rglob("*.incomplete"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def test_ctrl_c_keeps_the_parts_and_the_same_command_goes_on(hub: FakeHub, cache: Path) -> None:
    hub.faults.rate = SLOW
    process = subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while largest_part(cache) <= 50_000:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "are kept. The same command goes on from there." in err
    assert "Traceback" not in err
    hub.faults.rate = 0
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{cached(REPO)}\n")
    assert " here already · " in done.stderr
    assert any(seen.start > 0 for seen in hub.bodies())


@pytest.mark.slow
def test_in_a_terminal_one_line_moves(hub: FakeHub) -> None:
    hub.faults.rate = SLOW
    ours, theirs = pty.openpty()
    process = subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 120)[0]:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the terminal's other end was closed
            break
    os.close(ours)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read() == f"{cached(REPO)}\n".encode()
    assert process.wait(60) == 0
    moving = [part for part in shown.decode().split("\r\x1b[K") if " % " in part]
    assert len(moving) > 3
    assert " of 920 kB" in moving[0]
    percents = [int(part.split(" %")[0]) for part in moving]
    assert percents == sorted(percents)
    assert "Ready: 920 kB" in shown.decode().rstrip().splitlines()[-1]


def test_the_moving_line() -> None:
    now = Progress(6_600_000_000, 0, 10_900_000_000, 41_800_000, 0, 103, 62, 1, [])
    assert progress_line(now) == (
        "60 %  6.6 GB of 10.9 GB · 41.8 MB/s · 1 m 43 s left · 1 reconnect"
    )
    silent = Progress(6_600_000_000, 0, 10_900_000_000, 0, 12, None, 62, 2, [])
    assert progress_line(silent) == "60 %  6.6 GB of 10.9 GB · stalled 12 s · 2 reconnects"
    checking = Progress(100, 50, 100, 0, 0, 0, 62, 0, [{"path": "x", "state": "checking"}])
    assert progress_line(checking) == "100 %  100 B of 100 B · checking, 50 % checked"


def test_what_is_told_of_the_network() -> None:
    plan = Planned(
        "o/n", "main", "a" * 40, "/c/snapshots/a", [], 0, 5, 7, 9, "https://huggingface.co",
        "http://proxy:3128", "HF_TOKEN", "", "gated",
    )  # fmt: skip
    assert event_lines(plan) == [
        "o/n at aaaaaaa · 0 B in 0 files · gated",
        "to /c/snapshots/a",
        "from huggingface.co · through the proxy http://proxy:3128 · with the token from HF_TOKEN",
        "5 B here already · 7 B to fetch, 9 B free on the disk",
    ]


@pytest.mark.slow
async def test_from_inside_the_terminal_program(hub: FakeHub) -> None:
    """Textual puts a file of its own in place of stderr, whose number is -1; a child is started
    there all the same."""
    from textual.app import App

    events: list[Event] = []

    class Program(App[None]):
        async def on_mount(self) -> None:
            self.client = DownloadClient()
            await self.client.start(Start(REPO))
            self.run_worker(self.follow())

        async def follow(self) -> None:
            async for event in self.client.events():
                events.append(event)
            await self.client.close()
            self.exit()

    await Program().run_async(headless=True)
    assert isinstance(events[-1], Ready)


async def test_a_client_that_is_closed_leaves_no_process(hub: FakeHub) -> None:
    hub.faults.rate = SLOW
    client = DownloadClient()
    await client.close()
    await client.start(Start(REPO))
    events = client.events()
    while not isinstance(await anext(events), Planned):
        pass
    pid: Any = client.pid
    await client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
