"""Every screen at every size, as text; `golden.py` says how to rewrite the files."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.screen import Screen

from app.hub.messages import FileState, Notice, Planned, Progress
from app.models import DEFAULT_REPO
from app.tui.download_state import DownloadState
from app.tui.screens import chat_view
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.download import DownloadScreen
from app.tui.screens.help import HelpScreen
from app.tui.screens.models import ModelsScreen
from app.tui.screens.replay import ReplayScreen
from app.tui.screens.text import TextScreen
from tests.app.tui.driver import Window, window
from tests.app.tui.golden import check, still_world, told
from tests.app.tui.recording import Script

DOCTOR = {
    "summary": "The demo model runs; LLaDA2.1-mini needs an NVIDIA GPU.",
    "can_chat": True,
    "runs_large": False,
    "rows": [
        {"name": "GPU", "state": "no", "found": "no NVIDIA card", "need": "compute 8.0",
         "fix": "Use the demo model."},
        {"name": "PyTorch", "state": "ok", "found": "2.13 for the CPU", "need": "", "fix": ""},
        {"name": "Memory", "state": "ok", "found": "16 GB, 9.1 GB free", "need": "", "fix": ""},
        {"name": "Disk", "state": "warn", "found": "8 GB free", "need": "11.4 GB",
         "fix": "Free some space, or use another folder."},
    ],
}  # fmt: skip
LOG = "/home/me/.local/state/orl-chat/log/orl-chat.log\n\n" + "\n".join(
    f"2026-11-30 14:{minute:02d}:00 INFO app.tui: the engine is ready" for minute in range(40)
)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    still_world(monkeypatch)


@asynccontextmanager
async def program(tmp_path: Path, **options: Any) -> AsyncIterator[Window]:
    """The program, as it is when nothing was said yet. It never goes online."""
    trace = Script().answer("Yes.").write(tmp_path / "trace")
    async with window(trace, offline=True, options=options) as shown:
        await shown.ready()
        yield shown


async def opened(shown: Window, screen: type[Screen[Any]]) -> None:
    await shown.until(lambda: isinstance(shown.app.screen, screen))


async def test_an_empty_chat(tmp_path: Path) -> None:
    async with program(tmp_path) as shown:
        await check(shown, "chat-empty")


async def test_an_answer_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with program(tmp_path) as shown:
        await told(shown, until=(2, 3))
        turn = shown.session.turn
        assert turn is not None
        assert turn.sent_at is not None
        clock = SimpleNamespace(monotonic=lambda: (turn.sent_at or 0.0) + 1.3)
        monkeypatch.setattr(chat_view, "time", clock)
        await check(shown, "chat-streaming")


async def test_an_answer_that_is_complete_and_its_replay(tmp_path: Path) -> None:
    async with program(tmp_path) as shown:
        await told(shown)
        await check(shown, "chat-done")
        await shown.press("f6")
        await opened(shown, ReplayScreen)
        await shown.press("down", "right", "right")
        await check(shown, "replay")


@pytest.mark.slow
async def test_the_list_of_chats(tmp_path: Path) -> None:
    async with program(tmp_path) as shown:
        for title, text in (("Marbles", "How many are left?"), ("漢字とかな", "Sort these: 9, 4")):
            chat = shown.session.store.create_chat(title)
            shown.session.store.add_message(chat, "user", text)
        await shown.press("ctrl+o")
        await opened(shown, ChatsScreen)
        await check(shown, "chats")


@pytest.mark.slow
async def test_help(tmp_path: Path) -> None:
    async with program(tmp_path) as shown:
        shown.session.file.path = Path("/home/me/.config/orl-chat/config.toml")
        await shown.press("f1")
        await opened(shown, HelpScreen)
        await check(shown, "help")


async def test_the_choice_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(DOCTOR))
    doctor = ["cat", str(tmp_path / "report.json")]
    async with program(tmp_path, doctor=doctor) as shown:
        shown.app.action_models()
        await opened(shown, ModelsScreen)
        await check(shown, "models")


async def test_a_download(tmp_path: Path) -> None:
    async with program(tmp_path) as shown:
        shown.app.models.download.state = half_way()
        shown.app.push_screen(DownloadScreen(shown.app.models))
        await opened(shown, DownloadScreen)
        await check(shown, "download")


@pytest.mark.slow
async def test_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tui.app.all_tails", lambda: LOG)
    async with program(tmp_path) as shown:
        await shown.press("ctrl+l")
        await opened(shown, TextScreen)
        await check(shown, "log")


def half_way() -> DownloadState:
    """A download in its middle: one file checked, one on its way, one that waits."""
    sizes = {"model-1.safetensors": 4_900_000_000, "model-2.safetensors": 4_900_000_000}
    sizes["tokenizer.json"] = 7_100_000
    files = [
        {"path": path, "size": size, "kept": 0, "state": "waiting"} for path, size in sizes.items()
    ]
    total = sum(sizes.values())
    state = DownloadState(DEFAULT_REPO)
    state.take(
        Planned(
            repo=DEFAULT_REPO, revision="main", commit="3f2a91c" + "0" * 33,
            path="/home/me/.cache/hub/models/snapshots/3f2a91c",
            files=files, total=total, kept=0, need=total, free=212_000_000_000,
            endpoint="https://huggingface.co", licence="apache-2.0",
        )
    )  # fmt: skip
    state.take(Notice("Kept 1.2 GB of an earlier try."))
    state.take(FileState("tokenizer.json", "checked", 7_100_000, 7_100_000))
    moving = [
        {"path": "model-1.safetensors", "state": "fetching", "done": 3_000_000_000, "checked": 0,
         "speed": 41_800_000.0},
    ]  # fmt: skip
    state.take(
        Progress(
            done=3_007_100_000, checked=7_100_000, total=total, speed=41_800_000.0, stalled=0.0,
            left=163.0, elapsed=72.0, reconnects=1, files=moving,
        )
    )  # fmt: skip
    return state
