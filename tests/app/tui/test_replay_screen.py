"""The replay on screen, with keys: of the answer just given, and of one from the disk."""

import json
import math
from pathlib import Path

import pytest

from app.paths import paths
from app.settings import SettingsFile
from app.trace import read_recording
from app.tui.replay_app import ReplayProgram
from app.tui.screens.replay import ReplayScreen
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.heat_strip import HeatStrip
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script

TEXT = "Counting the apples gives forty seven, and adding the pears makes eighty five fruits. " * 4


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Script(pace=0.001).answer(TEXT).answer("Short.").write(tmp_path / "t")


async def replaying(shown: Window) -> ReplayScreen:
    await shown.ready()
    await shown.ask("How many?")
    await shown.answered()
    await shown.press("f6")
    await shown.until(lambda: isinstance(shown.app.screen, ReplayScreen))
    await shown.shows("Block 1 · step 1 of 4")
    screen = shown.app.screen
    assert isinstance(screen, ReplayScreen)
    return screen


async def test_every_step_of_the_last_answer_forwards_and_back(trace: Path) -> None:
    async with window(trace) as shown:
        screen = await replaying(shown)
        assert "How many?" in shown.text
        await shown.press("right")
        await shown.shows("Block 1 · step 2 of 4 · 16 of 32 set")
        await shown.press("left")
        await shown.shows("Block 1 · step 1 of 4 · 8 of 32 set")
        await shown.press("down")
        await shown.shows("Block 2 · step 1 of 4")
        await shown.press("end")
        await shown.shows("final · 4 steps")
        await shown.press("home", "space")
        await shown.until(lambda: screen.projector.index > 0)
        assert "playing" in shown.text
        await shown.press("space")
        await shown.shows("paused")
        await shown.press("minus")
        await shown.shows("2 steps/s")
        assert await shown.pilot.click(HeatStrip, offset=(6, 1))
        await shown.shows("Block 2 · step 3 of 4")
        await shown.press("f7")
        await shown.until(lambda: screen.query_one(BlockView).has_class("-text"))
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)


async def test_json_and_svg_are_saved_beside_the_other_exports(trace: Path) -> None:
    async with window(trace) as shown:
        await replaying(shown)
        await shown.press("e")
        await shown.until(lambda: list(paths().exports.glob("replay-*.json")))
        await shown.press("s")
        await shown.until(lambda: list(paths().exports.glob("replay-*.svg")))
    (saved,) = paths().exports.glob("*.json")
    assert json.loads(saved.read_text())["answer"] == TEXT
    (picture,) = paths().exports.glob("*.svg")
    assert picture.read_text().startswith("<svg")


async def test_an_answer_of_an_earlier_session_is_replayed_from_its_file(trace: Path) -> None:
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("How many?")
        await shown.answered()
        chat = shown.session.conversation.id
    assert len(list(paths().traces.iterdir())) == 1
    assert chat is not None
    async with window(trace) as shown:
        shown.app.chat.open(chat, "again")
        await shown.until(lambda: shown.session.conversation.entries)
        await shown.press("f6")
        await shown.shows("Block 1 · step 1 of 4")
        await shown.press("escape")
        (recording,) = paths().traces.iterdir()
        hidden = recording.rename(recording.with_name("elsewhere"))
        await shown.press("f6")
        await shown.shows("No answer here was recorded.")
        hidden.rename(recording)
        shown.session.delete(chat)
        shown.session.recordings.prune()
        assert len(list(paths().traces.iterdir())) == 1  # it can be brought back
        shown.session.store._purge(math.inf)
        shown.session.recordings.prune()
        assert list(paths().traces.iterdir()) == []


async def test_a_recording_has_a_window_of_its_own(trace: Path) -> None:
    program = ReplayProgram(read_recording(trace), SettingsFile.open())
    async with program.run_test(size=(80, 24)) as pilot:
        screen = program.screen
        assert isinstance(screen, ReplayScreen)
        assert screen.projector.film.source == "demo · cpu"
        first = screen.projector.film
        await pilot.press("n")
        assert screen.projector.film is not first
        assert [block.text for block in screen.projector.film.blocks] == ["Short."]
        await pilot.press("end", "q")
    assert program.return_code == 0
