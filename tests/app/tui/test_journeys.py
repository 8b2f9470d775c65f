"""Journeys with real keys through the real program, its engine process playing a recording."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest
from textual.widgets import Button, Input, OptionList

from app.paths import paths
from app.protocol import Block, Done, Error, Step
from app.store import Store
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.help import HelpScreen
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.card import ProblemCard
from app.tui.widgets.chat_list import ChatList
from app.tui.widgets.messages import Answer
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.safe_markdown import SafeMarkdown
from app.tui.widgets.transcript import Transcript
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script, denoising, stats, tokens_of

SHORT = "Tens: 40 + 30 = 70\n\nTogether: **85**"
LONG = "\n\n".join(f"Paragraph {i} says what it has to say, and then some more." for i in range(16))


def stored() -> list[tuple[str, str, str | None]]:
    store = Store.open(paths().store)
    try:
        return [(m.role, m.content, m.reason) for m in store.messages(store.chats()[0].id)]
    finally:
        store.close()


def tries() -> list[str | None]:
    """How each version of the last stored answer ended."""
    store = Store.open(paths().store)
    try:
        last = store.messages(store.chats()[0].id)[-1]
        return [version.reason for version in store.versions(last.id)]
    finally:
        store.close()


def prompt(shown: Window) -> Prompt:
    return shown.app.chat.query_one(Prompt)


def listed(shown: Window) -> int | None:
    """How many chats the list holds; None while there is no list."""
    if not isinstance(shown.app.screen, ChatsScreen):
        return None
    return next((len(chats.chats) for chats in shown.app.screen.query(ChatList)), None)


async def test_first_start_a_question_and_its_figures(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).answer(LONG).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.shows("This machine")
        await shown.shows("What is 47 + 38?")
        await shown.ready()
        await shown.shows("2.6 million parameters")
        await shown.shows("demo · CPU · quality preset")
        await shown.ask("What is 47 + 38?")
        await shown.answered()
        assert "This machine" not in shown.text
        await shown.shows("Together: 85")
        await shown.shows("tok/s · TPF")
        await shown.shows("Last answer")
        await shown.shows("Block 1 · step")
        await shown.until(lambda: prompt(shown).text == "")
        await shown.ask("More")
        await shown.answered()
        await shown.shows("Paragraph 15")
        assert shown.app.chat.query_one(Transcript).scroll_y > 0
        answers = shown.app.chat.query(Answer)
        assert [a.query_one(SafeMarkdown).source for a in answers] == [SHORT, LONG]
    assert [row[:2] for row in stored()] == [
        ("user", "What is 47 + 38?"), ("assistant", SHORT), ("user", "More"), ("assistant", LONG),
    ]  # fmt: skip


async def test_stop_again_and_keys_of_the_prompt(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(LONG, hold=1).answer(SHORT).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.press("enter")
        await shown.shows("Type a message first.")
        await shown.press("a", "ctrl+j", "b", "enter")
        await shown.writing(1)
        await shown.shows("Answering")
        await shown.shows("esc stop")
        await shown.shows("Paragraph 3")
        await shown.ask("too early")
        await shown.until(lambda: prompt(shown).text == "too early")
        await shown.press("escape")
        await shown.answered()
        await shown.shows("· stopped")
        assert shown.session.conversation.entries[0].content == "a\nb"
        kept = shown.session.conversation.entries[1].content
        assert LONG.startswith(kept)
        assert kept
        prompt(shown).text = "draft"
        await shown.press("up")
        await shown.until(lambda: prompt(shown).text == "a\nb")
        await shown.press("down")
        await shown.until(lambda: prompt(shown).text == "draft")
        await shown.press("escape")
        await shown.until(lambda: shown.app.focused is shown.app.chat.query_one(Transcript))
        await shown.press("x")
        await shown.until(lambda: prompt(shown).text == "draftx")
        await shown.press("ctrl+r")
        await shown.answered()
        await shown.shows("version 2/2 · ")
    assert [row[2] for row in stored()] == [None, "end"]
    assert tries() == ["stopped", "end"]


async def test_keys_that_come_all_at_once_are_taken_in_order(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.burst("a", "b", "ctrl+j", "c", "enter", "d")
        await shown.answered()
        assert shown.session.conversation.entries[0].content == "ab\nc"
        await shown.until(lambda: prompt(shown).text == "d")
        await shown.paste("\x1b[2J\r\n[b]\x07")
        await shown.until(lambda: prompt(shown).text == "d[2J\n[b]")
        await shown.press("ctrl+o")
        await shown.until(lambda: listed(shown) == 1)
        await shown.press("f2")
        await shown.shows("New name")
        await shown.press("ctrl+u")
        await shown.until(lambda: shown.app.screen.query_one(Input).value == "")
        await shown.burst("n", "e", "w", "enter")
        await shown.until(lambda: shown.session.conversation.title == "new")


async def test_chats_are_there_after_a_restart_and_can_be_managed(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        for text in ("About cats", "About dogs"):
            await shown.press("ctrl+n")
            await shown.ask(text)
            await shown.answered()
    async with window(trace) as shown:
        await shown.shows("Go on with")
        await shown.shows("About dogs")
        await shown.press("up")
        await shown.until(lambda: prompt(shown).text == "About dogs")
        prompt(shown).text = ""
        await shown.press("tab")
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await shown.press("enter")
        await shown.answered()
        await shown.press("ctrl+o")
        await shown.until(lambda: isinstance(shown.app.screen, ChatsScreen))
        chats = shown.app.screen
        await shown.until(lambda: listed(shown) == 3)
        chats.query_one(Input).insert_text_at_cursor("CATS")
        await shown.until(lambda: listed(shown) == 1)
        await shown.press("f2")
        await shown.shows("New name")
        chats.query_one(Input).value = "About [b]lions[/b]"
        await shown.press("enter")
        await shown.shows("About [b]lions[/b]")
        await shown.press("ctrl+u")
        await shown.until(lambda: listed(shown) == 3)
        await shown.press("down", "down", "ctrl+d")
        await shown.shows("Deleted “About [b]lions[/b]”")
        await shown.until(lambda: listed(shown) == 2)
        await shown.press("down", "enter")
        await shown.shows("Together: 85")
        assert len(shown.session.conversation.entries) == 2


async def test_the_engine_is_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(LONG, hold=1).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.writing(1)
        os.kill(shown.app.link.pid or 0, signal.SIGKILL)
        await shown.shows("[ Restart ]")
        await shown.shows("The engine stopped")
        kept = shown.session.conversation.entries[1].content
        assert kept.startswith("Paragraph 0")
        assert stored()[1] == ("assistant", kept, "error")
        card = shown.app.chat.query_one(ProblemCard)
        card.query(Button).first().press()
        await shown.ready()
        await shown.until(lambda: not shown.app.chat.query(ProblemCard))
        await shown.ask("Once more")
        await shown.writing(1)


async def test_an_engine_that_cannot_start_or_load(tmp_path: Path) -> None:
    async with window(tmp_path, command=["/no/such/program"]) as shown:
        await shown.shows("The engine stopped")
        await shown.ask("Kept")
        await shown.until(lambda: shown.session.turn is not None)
        await shown.until(lambda: len(shown.app.chat.query(ProblemCard)) == 2)
    async with window(tmp_path / "missing") as shown:
        await shown.shows("[ Restart ]")
        await shown.shows("[ Details ]")
    assert stored()[0][:2] == ("user", "Kept")


async def test_a_prompt_that_does_not_fit_stays_in_the_field(tmp_path: Path) -> None:
    script = Script(pace=0.001)
    counts = {"prompt": 2100, "context": 2048}
    refusal = Error("prompt_too_long", "The prompt is too long.", "Shorten it.", "", "a0", counts)
    trace = script.messages(refusal).answer(SHORT).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("x" * 300)
        await shown.shows("It is 2,100 tokens long; the context holds")
        await shown.shows("Ready")
        await shown.until(lambda: prompt(shown).text == "x" * 300)
        assert not shown.app.chat.query(Answer)
        prompt(shown).text = "short"
        await shown.press("enter")
        await shown.answered()
        await shown.shows("Together: 85")
    assert [row[1] for row in stored()] == ["short", SHORT]


async def test_a_model_cannot_draw_outside_its_place(tmp_path: Path) -> None:
    nasty = "Plain [b]not bold[/b] [@click=app.quit]no[/] \x1b[31mred &#27;[2J `\x9b2J` \u202eabc"
    script = Script(pace=0.001)
    (slots,) = denoising(tokens_of("[red]x[/]"), steps=1)
    slots[0][1], slots[1][1], slots[2][1] = "\x1b[2J", "\ufffd", "[b]"
    trace = script.messages(
        Step("a0", 0, 1, slots, 8, 0, 32, 1, 0.1),
        Block("a0", 0, nasty, 32, 1, 1, 0, 0.1, 0.1),
        Done("a0", "end", nasty, stats(32, 1, 0.1)),
    ).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("\x1b[31m [bold]me[/bold]")
        await shown.answered()
        await shown.shows("Plain [b]not bold[/b] [@click=app.quit]no[/]")
        await shown.shows("[31m [bold]me[/bold]")
        text = shown.text
        assert not [c for c in text if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]
        assert "\u202e" not in text
        await shown.shows("·           [b]")


async def test_every_window_size(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace, size=(160, 45)) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.answered()
        block = shown.app.chat.query_one(BlockView)
        await shown.shows("forwards/s")
        await shown.until(lambda: block.size.height == 5)
        await shown.pilot.resize_terminal(80, 24)
        await shown.until(lambda: block.size.height == 5)
        assert "forwards/s" not in shown.text
        await shown.shows("tok/s ")
        await shown.pilot.resize_terminal(60, 20)
        await shown.until(lambda: not block.is_on_screen)
        await shown.shows("Together: 85")
        await shown.pilot.resize_terminal(59, 20)
        await shown.shows("60 x 20 at least")
        await shown.shows("orl-chat needs")
        await shown.pilot.resize_terminal(100, 30)
        await shown.shows("forwards/s")
        await shown.until(lambda: block.size.height == 5)


async def test_ascii_and_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    trace = Script(pace=0.001).answer(SHORT + "\n\n- item\n\n> quote\n\n| a |\n|---|\n| b |")
    async with window(trace.write(tmp_path / "t"), ascii=True) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.answered()
        await shown.until(lambda: shown.text.isascii())
        await shown.shows("step")
        await shown.press("ctrl+o")
        await shown.shows("Chats")
        await shown.until(lambda: shown.text.isascii())


async def test_block_views_and_slow_motion(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).answer(SHORT).write(tmp_path / "t")
    async with window(trace, slow_steps_per_second=50) as shown:
        await shown.ready()
        await shown.press("ctrl+t")
        await shown.shows("slow motion: 50 steps/s")
        await shown.ask("Go")
        await shown.answered()
        await shown.shows("Block 1 · step 4 of 4 · 32 of 32 set · final")
        await shown.shows("not measured")
        await shown.shows("slow motion: speed not measured")
        await shown.press("ctrl+t")
        await shown.shows("block view: off")
        await shown.until(lambda: "Block 1" not in shown.text)


async def test_what_could_not_be_read_is_said_and_the_chat_goes_on(
    tmp_path: Path, home: Path
) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text("preset = 'warp'\ntheme = 'no such'\n")
    (home / "data").mkdir()
    (home / "data" / "chats.db").write_bytes(b"not a database, and long enough to be read" * 99)
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace, size=(100, 45)) as shown:
        await shown.until(lambda: len(shown.app.chat.query(ProblemCard)) == 3)
        titles = [card.problem.title for card in shown.app.chat.query(ProblemCard)]
        assert titles == ["Settings", "Settings", "Chats"]
        await shown.ready()
        await shown.ask("Go")
        await shown.answered()
    assert stored()[1][1] == SHORT


async def test_a_folder_that_cannot_be_written(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "data").write_text("a file where the folder should be")
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.until(lambda: shown.app.chat.query(ProblemCard))
        assert "kept in memory" in shown.app.chat.query_one(ProblemCard).problem.message
        await shown.ask("Go")
        await shown.answered()
        await shown.shows("Together: 85")
        assert len(shown.app.chat.query(ProblemCard)) == 1


async def test_help_lists_the_keys_in_force(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    async with window(trace, size=(100, 60), keys={"chat.new": "ctrl+y"}) as shown:
        await shown.ready()
        await shown.shows("^y new")
        await shown.press("f1")
        await shown.until(lambda: isinstance(shown.app.screen, HelpScreen))
        await shown.shows("Ctrl+Y")
        await shown.shows("Tokens per forward")
        await shown.press("escape", "ctrl+l")
        await shown.shows("(empty)")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        await shown.press("ctrl+p")
        await shown.shows("Block view")
        await shown.shows("Start an empty chat (Ctrl+Y)")
        await shown.press("escape")
        await shown.type("kept")
        talk = shown.session.conversation
        await shown.press("ctrl+y")
        await shown.until(lambda: shown.session.conversation is not talk)
        assert prompt(shown).text == "kept"


async def test_quit_leaves_no_engine_and_loses_nothing(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(LONG, hold=1).write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.writing(1)
        pid = shown.app.link.pid or 0
        await shown.press("ctrl+q")
        await shown.until(lambda: shown.app.return_code == 0)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    rows = stored()
    assert rows[1][2] == "stopped"
    assert LONG.startswith(rows[1][1])
    with sqlite3.connect(paths().store) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)


async def test_what_was_typed_and_not_sent_is_there_again(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer(SHORT).write(tmp_path / "t")
    text = "half a thought,\nand [more] of it ✓"
    async with window(trace) as shown:
        await shown.ready()
        prompt(shown).put(text)
        await shown.press("ctrl+q")
    assert paths().draft.stat().st_mode & 0o077 == 0
    async with window(trace) as shown:
        await shown.ready()
        await shown.until(lambda: prompt(shown).text == text)
        assert not paths().draft.exists(), "one window has it"
        await shown.ask("")
        await shown.answered()
        await shown.press("ctrl+q")
    assert not paths().draft.exists()
