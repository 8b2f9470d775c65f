"""The tabs beside the chat and its dialogs as golden text: at one size here, the others slow."""

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import library
from app.library import LibraryAdapter, LibraryModel
from app.paths import Paths
from app.tui.screens.attach import AttachScreen
from app.tui.screens.chat_settings import ChatSettingsScreen
from app.tui.screens.compare import CompareScreen
from app.tui.screens.confirm import ConfirmScreen
from app.tui.screens.export import ExportScreen
from app.tui.screens.finetune import FinetuneScreen
from app.tui.screens.keep import KeepScreen
from app.tui.screens.keys import KeysScreen
from app.tui.screens.library import LibraryScreen
from app.tui.screens.run import RunScreen
from app.tui.screens.speed import SpeedScreen
from finetune.runs import Status
from tests.app.training import add, make_run, update, whole_state
from tests.app.training import check as held_out
from tests.app.tui.golden import SIZES, check, still_world, told
from tests.app.tui.test_golden import opened, program

ME = Path("/home/me")
WHY = "Programs in answers run on this machine, in a sandbox without files and network."
AT_EACH_SIZE = pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(SIZES[:1], id="100x30"),
        pytest.param(SIZES[1:], id="others", marks=pytest.mark.slow),
    ],
)
Sizes = tuple[tuple[int, int], ...]


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    still_world(monkeypatch)
    then = SimpleNamespace(fromtimestamp=lambda _: datetime(2026, 11, 30, 14, 21))
    monkeypatch.setattr("app.tui.speed.datetime", then)
    monkeypatch.setattr("app.run_watch.size_of", lambda _: 310_000)


@AT_EACH_SIZE
async def test_speed(tmp_path: Path, sizes: Sizes) -> None:
    async with program(tmp_path) as shown:
        await told(shown)
        await shown.press("f3")
        await opened(shown, SpeedScreen)
        await shown.shows("Answer 1 of 1")
        await check(shown, "speed", sizes)


@AT_EACH_SIZE
async def test_finetune(tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Paths(ME / "config", ME / "data", ME / "state", ME / "cache")
    monkeypatch.setattr("app.tui.screens.export.paths", lambda: home)
    make_runs()
    async with program(tmp_path) as shown:
        await shown.press("f4")
        await opened(shown, FinetuneScreen)
        await shown.shows("before")
        await check(shown, "finetune", sizes)
        await shown.press("enter")
        await opened(shown, RunScreen)
        await check(shown, "run", sizes)
        await shown.press("c")
        await opened(shown, CompareScreen)
        await check(shown, "compare", sizes)
        await shown.press("e")
        await opened(shown, ExportScreen)
        await check(shown, "export", sizes)


@AT_EACH_SIZE
async def test_models_and_settings(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [
        LibraryModel("demo", "built in", None, 10_500_000),
        LibraryModel("somebody/tiny", "partial", ME / "hub" / "tiny", 4_100_000_000, "3f2a91c"),
    ]
    monkeypatch.setattr(library, "models", lambda _: models)
    monkeypatch.setattr(library, "adapters", lambda: [LibraryAdapter("sums", "demo", 20, 310_000)])
    async with program(tmp_path) as shown:
        shown.session.file.path = ME / "config.toml"
        await shown.press("f5")
        await opened(shown, LibraryScreen)
        await shown.shows("somebody/tiny")
        await check(shown, "library", sizes)
        await shown.press("f6")
        await opened(shown, KeysScreen)
        await check(shown, "keys", sizes)


@AT_EACH_SIZE
async def test_dialogs_of_the_chat(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    (folder / "notes").mkdir(parents=True)
    (folder / "list.txt").write_text("one\n")
    monkeypatch.chdir(folder)
    async with program(tmp_path) as shown:
        await told(shown)
        for key, screen, name in (
            ("ctrl+s", KeepScreen, "keep"),
            ("ctrl+f", AttachScreen, "attach"),
            ("f9", ChatSettingsScreen, "chat-settings"),
        ):
            await shown.press(key)
            await opened(shown, screen)
            await check(shown, name, sizes)
            await shown.press("escape")
            await shown.until(lambda: shown.app.screen is shown.app.chat)
        question = ConfirmScreen("Leave to run code", WHY, yes="Allow", no="Not now")
        shown.app.push_screen(question)
        await opened(shown, ConfirmScreen)
        await check(shown, "confirm", sizes)


def make_runs() -> None:
    """One that failed, and a newer one that is done and was compared."""
    make_run("before", updates=50).write_status(Status("failed", update=3, updates=50))
    sums = make_run("sums")
    for done in range(1, 21):
        add(sums, update(done, kept=done % 4 + 4, tpf_steps=6 + done / 10, seconds=2.0))
        if done % 5 == 0:
            add(sums, held_out(done, 4 + done // 5, 6 + done / 10))
    whole_state(sums, 20)
    (sums.path / "checkpoints" / "000020").mkdir(parents=True)
    sums.write_status(Status("done", update=20, updates=20, best=20))
    right = {"right": True, "text": "Together: **85**"}
    wrong = {"right": False, "text": "That makes **84**"}
    items = [
        {"question": "What is 47 + 38?", "base": wrong, "tuned": right},
        {"question": "What is 6 x 7?", "base": right, "tuned": right},
    ]
    (sums.path / "compare.json").write_text(json.dumps({"update": 20, "items": items}))
