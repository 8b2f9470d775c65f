"""The list of chats with real keys: what is found, opened, deleted, brought back, written, read."""

import json
import time
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.widgets import Input

from app import chat_files
from app.paths import paths
from app.store import Store
from app.tui import chat_transfer
from app.tui.chat_rows import CHOSEN
from app.tui.screens.chats import ChatsScreen
from app.tui.widgets.chat_list import ChatList
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where exports go."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Script(pace=0.001).answer("Yes.").answer("No.").write(tmp_path / "t")


def filled(*titles: str) -> Store:
    """A chat a title, the last one the newest, each with a question about it and an answer."""
    store = Store.open(paths().store)
    for title in titles:
        chat = store.create_chat(title)
        store.add_message(chat, "user", f"What about {title}?")
        store.update_message(store.add_message(chat, "assistant", "Nothing."), reason="end")
    return store


async def opened(shown: Window) -> ChatList:
    """The list, with its chats."""
    await shown.ready()
    await shown.press("ctrl+o")
    await shown.until(lambda: isinstance(shown.app.screen, ChatsScreen))
    await shown.until(lambda: shown.app.screen.query(ChatList))
    chats = shown.app.screen.query_one(ChatList)
    await shown.until(lambda: chats.chats)
    return chats


def titles(chats: ChatList) -> list[str]:
    return [chat.title for chat in chats.chats]


def chosen(chats: ChatList) -> str | None:
    return chats.chosen.title if chats.chosen is not None else None


def field(shown: Window) -> Input:
    return shown.app.screen.query_one(Input)


async def test_keys_that_come_all_at_once_act_on_the_chat_that_they_found(trace: Path) -> None:
    store = filled("zebra", "yak", "xerus")
    async with window(trace, store=store) as shown:
        chats = await opened(shown)
        await shown.burst(*"zeb", "ctrl+d")
        await shown.until(lambda: [c.title for c in store.chats()] == ["xerus", "yak"])
        await shown.shows("Deleted “zebra”; Ctrl+Z brings it back")
        await shown.burst(*["backspace"] * 3, "down", "ctrl+d", "ctrl+d", "ctrl+z", "ctrl+z")
        await shown.shows("“yak” is back.")
        assert titles(chats) == ["xerus", "yak"]
        assert chosen(chats) == "yak"
        await shown.burst("ctrl+z", *"xer", "f2", "ctrl+u", *"emu", "enter")
        await shown.burst("ctrl+u", *"y", "enter", *"So?", "enter")
        await shown.answered()
        talk = shown.session.conversation
        assert (talk.title, talk.entries[-2].content) == ("yak", "So?")
        assert sorted(c.title for c in store.chats()) == ["emu", "yak", "zebra"]


async def test_a_search_opens_the_chat_at_the_message_and_version_it_found(trace: Path) -> None:
    store = filled("deserts", "rivers")
    (question, _) = store.messages(1)
    for number in range(6):
        store.add_message(1, "user", f"More {number}. " + "Sand. " * 60)
        answer = store.add_message(1, "assistant", "Dunes.\n\n" * 9)
        store.update_message(answer, reason="end")
    store.add_version(question.id, "Forget it")
    async with window(trace, store=store, size=(80, 24)) as shown:
        chats = await opened(shown)
        await shown.press(*"more 3")
        await shown.until(lambda: titles(chats) == ["deserts"])
        await shown.shows("More 3. Sand.")
        await shown.until(lambda: "underline" in looks(shown, "More"))
        assert "underline" not in looks(shown, "Sand.")
        await shown.press("enter")
        await shown.shows("─ found─")
        await shown.shows("More 3. Sand.")
        (mark,) = shown.app.chat.query(".-found")
        transcript = shown.app.chat.query_one(Transcript)
        await shown.until(lambda: in_view(transcript, mark.virtual_region))
        assert "Dunes" in shown.session.conversation.entries[-1].content
        await shown.ask("On?")
        await shown.answered()
        assert [m.content for m in store.messages(1)][-2:] == ["On?", "Yes."]


def in_view(transcript: Transcript, region: Region) -> bool:
    return region.y == transcript.scroll_y


def looks(shown: Window, word: str) -> str:
    """How the first piece of a line that begins with `word` is drawn."""
    for strip in shown.app.screen._compositor.render_strips():
        for segment in strip:
            if segment.text.strip().startswith(word) and segment.style is not None:
                return str(segment.style)
    return ""


async def test_an_answer_being_written_is_not_moved_to_another_version(trace: Path) -> None:
    store = filled("deserts")
    store.add_version(1, "Of oases")
    trace = Script(pace=0.001).answer("One. " * 40, hold=1).write(trace.with_name("held"))
    async with window(trace, store=store) as shown:
        chats = await opened(shown)
        await shown.press("enter")
        await shown.until(lambda: shown.session.conversation.id == 1)
        await shown.ask("Well?")
        await shown.writing(1)
        path = [m.content for m in store.messages(1)][:2]
        chats = await opened(shown)
        await shown.press(*"deserts")
        await shown.until(lambda: chats.chats[0].hit)
        await shown.press("enter")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        assert shown.session.turn_here is not None
        assert [m.content for m in store.messages(1)][:2] == path
        await shown.press("escape")
        await shown.answered()


async def test_rename_and_its_way_back_keep_the_search(trace: Path) -> None:
    store = filled("zebra", "yak [b]one[/b]", "yak two")
    async with window(trace, store=store) as shown:
        chats = await opened(shown)
        await shown.press(*"yak", "down", "f2")
        await shown.shows("New name")
        await shown.until(lambda: field(shown).value == "yak [b]one[/b]")
        await shown.press("ctrl+d", "ctrl+s", "escape")
        await shown.until(lambda: field(shown).value == "yak")
        await shown.press("f2", "ctrl+u", "enter")
        await shown.until(lambda: field(shown).value == "yak")
        assert titles(chats) == ["yak two", "yak [b]one[/b]"], "no name is no change"
        await shown.press("f2", *" 1", "enter")
        await shown.until(lambda: titles(chats) == ["yak two", "yak [b]one[/b] 1"])
        assert chosen(chats) == "yak [b]one[/b] 1"
        await shown.shows("yak [b]one[/b] 1")


async def test_export_never_writes_over_a_file_and_is_imported_once(
    trace: Path, user_home: Path
) -> None:
    store = filled("zebra", "yak")
    (user_home / "yak.md").write_text("mine")
    async with window(trace, store=store, size=(160, 45)) as shown:
        chats = await opened(shown)
        await shown.press("ctrl+s")
        await shown.until(lambda: field(shown).value == "~/yak-2.md")
        await shown.press(*["backspace"] * 5, *".md", "enter")
        await shown.shows("exists already")
        assert (user_home / "yak.md").read_text() == "mine"
        await shown.press("ctrl+t", "enter")
        await shown.shows("Saved as")
        assert [c.title for c in chat_files.read(user_home / "yak.json")] == ["yak"]
        await shown.press("ctrl+s", "enter")
        await shown.until((user_home / "yak-2.md").exists)
        await shown.press("ctrl+s", *["backspace"] * 3, "enter")
        await shown.shows("must end in .md")
        await shown.press("escape", "ctrl+o", "enter")
        await shown.shows("Type the path of a file.")
        await shown.press(*"~/gone.json", "enter")
        await shown.shows("cannot be read")
        await shown.press("ctrl+u", *"~/yak.", "tab", *"js", "tab")
        await shown.until(lambda: field(shown).value == "~/yak.json")
        await shown.press("enter")
        await shown.shows("That chat was here already.")
        await shown.press("ctrl+d", "ctrl+o", *"~/yak.json", "enter")
        await shown.shows("Imported 1 chat.")
        assert titles(chats) == ["yak", "zebra"]
        assert chosen(chats) == "yak"


async def test_many_chats_come_in_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_transfer, "AT_ONCE", 2)
    chats = filled("a", "b", "c", "d", "e").records()
    here, told = Store.open(None), list[str]()
    new, words = await chat_transfer.bring_in(here, chats, told.append)
    assert told == ["Importing: 2 of 5 chats", "Importing: 4 of 5 chats"]
    assert (len(new), words) == (5, "Imported 5 chats.")
    assert [chat.title for chat in here.chats()] == ["e", "d", "c", "b", "a"]
    assert (await chat_transfer.bring_in(here, chats, told.append))[0] == []


async def test_a_chat_is_brought_back_after_a_restart(trace: Path) -> None:
    async with window(trace, store=filled("zebra", "yak")) as shown:
        await opened(shown)
        await shown.press("ctrl+d")
        await shown.shows("^z undo")
    async with window(trace) as shown:
        chats = await opened(shown)
        assert titles(chats) == ["zebra"]
        await shown.press("ctrl+z")
        await shown.until(lambda: titles(chats) == ["yak", "zebra"])
        await shown.until(lambda: "undo" not in shown.text)


@pytest.mark.slow
async def test_two_thousand_chats_scroll_and_are_clicked(trace: Path) -> None:
    now = time.time()
    record = {"created": now, "updated": now, "messages": []}
    source = trace.with_name("many.json")
    rows = [{"title": f"Chat {n}", **record, "created": now + n} for n in range(2000)]
    source.write_text(json.dumps({"format": "orl-chat chats", "version": 1, "chats": rows}))
    store = Store.open(paths().store)
    store.add_records(chat_files.read(source))
    async with window(trace, store=store, size=(60, 20)) as shown:
        chats = await opened(shown)
        assert len(chats.chats) == 2000
        assert not chats.children
        await shown.shows(f"{CHOSEN}Chat 1999")
        await shown.shows("enter open")
        await shown.burst(*["pagedown"] * 2, "down")
        below = f"Chat {1999 - 2 * chats.page - 1}"
        await shown.shows(f"{CHOSEN}{below} ")
        await shown.burst("up", *["pageup"] * 3)
        await shown.shows(f"{CHOSEN}Chat 1999")
        chats.scroll_end(animate=False, immediate=True)
        await shown.shows("Chat 0 ")
        await shown.pilot.click(ChatList, offset=(5, chats.size.height - 1))
        await shown.until(lambda: shown.session.conversation.title == "Chat 0")
        assert shown.app.chat.query_one(Prompt).has_focus


async def test_a_full_search_says_that_it_is(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tui.screens.chats.FOUND", 2)
    async with window(trace, store=filled("a1", "a2", "a3")) as shown:
        chats = await opened(shown)
        await shown.press("a")
        await shown.shows("The newest 2 are shown")
        assert len(chats.chats) == 2
        await shown.press("x")
        await shown.shows("No chat holds that.")
        await shown.press("ctrl+d", "f2", "ctrl+s", "enter", "backspace", "backspace")
        await shown.until(lambda: len(chats.chats) == 3)
