"""Several features at once: chats, versions, cards and the field while something else goes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Button, Input, OptionList, TextArea

from app.protocol import Block, Done, Error, Stop
from app.store import Store
from app.store_schema import StoreError
from app.tui.screens.attach import AttachScreen
from app.tui.screens.chat import SLOW_LATER
from app.tui.screens.chat_field import EDITING
from app.tui.screens.chat_settings import ChatSettingsScreen
from app.tui.tabs import CHAT
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome_card import WelcomeCard
from tests.app.tui.bench import Bench
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import READY

COUNTS = {"prompt": 2100, "context": 2048}


def refuse(bench: Bench) -> None:
    bench.error("prompt_too_long", counts=COUNTS)


def turn(bench: Bench, question: str, answer: str, reason: str = "end") -> None:
    assert bench.session.ask(question) is None
    bench.done(answer, reason)


def test_what_did_not_fit_is_still_that_message_after_leafing() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    bench.session.again()
    bench.done("second")
    bench.session.ask("Far too long")
    refuse(bench)
    talk = bench.session.conversation
    assert bench.session.leaf(talk.entries[1], -1) is None
    assert bench.session.fit("Far too long") is None
    assert [e.content for e in talk.entries] == ["One", "first", "Far too long", ""]
    assert talk.unsent is None
    bench.done("fits")
    assert (talk.entries[2].version, talk.entries[2].versions) == (1, 1)


def test_a_choice_about_a_message_that_is_not_shown_any_more() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    bench.session.edit(None)
    bench.session.ask("One, better")
    bench.session.handle(Block(bench.turn.id, 0, "full", 32, 4, 4, 0, 0.1, 0.2))
    bench.done("full", "context")
    bench.session.go_on()
    refuse(bench)
    talk = bench.session.conversation
    better = talk.entries[0]
    assert bench.session.leaf(better, -1) is None
    assert bench.session.fit("") == "There is no question to answer again."
    assert bench.session.again(better) == "There is no question to answer again."
    assert bench.session.edit(better) == "There is no message to edit."


def test_the_choice_is_about_what_did_not_fit_whatever_is_in_the_field() -> None:
    for how in ("fit", "move"):
        bench = Bench().ready()
        turn(bench, "One", "first")
        bench.session.ask("Far too long")
        refuse(bench)
        bench.session.conversation.unsent_aside = True
        act = bench.session.fit if how == "fit" else bench.session.move
        assert act("something else") is None
        assert bench.turn.question.content == "Far too long"


@pytest.mark.parametrize("kind", ["prompt_too_long", "memory"])
def test_what_goes_wrong_in_another_chat_offers_nothing_here(kind: str) -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.session.new_chat()
    bench.error(kind, counts=COUNTS)
    (problem,) = bench.view.problems
    assert problem.message.startswith("In “One”: ")
    assert (problem.hint, problem.actions) == ("Open that chat to go on with it.", ())


def test_an_answer_in_a_chat_that_is_deleted_ends() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Some")
    id = bench.session.conversation.id or 0
    bench.session.delete(id)
    assert isinstance(bench.sent[-1], Stop)
    assert "turn_ended" in bench.view.names
    with pytest.raises(StoreError, match="gone"):
        bench.session.open_chat(id, "One")
    bench.store.restore_chat(id)
    assert bench.saved()[1] == ("assistant", "Some", "stopped")


def test_an_answer_that_quitting_ends_has_its_figures() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Some")
    id = bench.turn.id
    bench.session.close()
    (answer,) = bench.store.answers(1)
    assert answer.reason == "stopped"
    assert answer.stats is not None
    assert (answer.stats["tokens"], answer.stats["trace"]) == (32, id)


def test_stopping_ends_the_looking_for_room() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    bench.session.ask("Far too long")
    refuse(bench)
    assert bench.session.fit("Far too long") is None
    assert bench.session.stop()
    refuse(bench)
    assert bench.session.turn is None
    assert bench.session.conversation.unsent is not None


@contextlib.asynccontextmanager
async def without_engine(store: Store | None = None) -> AsyncIterator[Window]:
    """A window whose engine is the test."""
    command = ["sleep", "3600"]
    async with window(Path(), store=store or Store.open(None), command=command) as shown:
        await shown.until(lambda: shown.app.link.pid and prompt(shown).has_focus)
        shown.session.handle(READY)
        shown.session.send = lambda request: None
        yield shown


def prompt(shown: Window) -> Prompt:
    return shown.app.chat.query_one(Prompt)


async def answer(shown: Window, text: str) -> None:
    await shown.until(lambda: shown.session.turn)
    assert shown.session.turn is not None
    shown.session.handle(Done(shown.session.turn.id, "end", text, {"tokens": 1, "forwards": 1}))


async def too_long(shown: Window) -> None:
    await shown.until(lambda: shown.session.turn)
    assert shown.session.turn is not None
    shown.session.handle(Error("prompt_too_long", "", "", "", shown.session.turn.id, COUNTS))


async def test_a_window_that_is_told_twice_to_go_goes_once(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words")
    async with without_engine() as shown:
        await shown.press("ctrl+f")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        screen = shown.app.screen
        assert isinstance(screen, AttachScreen)
        screen.query_one(Input).value = str(tmp_path / "notes.txt")
        await shown.burst("enter", "escape")
        await shown.shows("notes.txt 5 B")
        screen.dismiss(None)
        await shown.type("still here")
        await shown.shows("still here")


async def test_a_command_that_is_chosen_twice_runs_once() -> None:
    async with without_engine() as shown:
        await shown.press("ctrl+p")
        await shown.shows("Attach a file")
        await shown.press(*"block view")
        await shown.until(lambda: "Log" not in shown.text and "slow motion or off" in shown.text)
        await shown.press("down")
        await shown.burst("enter", "enter", "enter")
        await shown.shows("slow motion: 4 steps/s")
        await shown.until(lambda: shown.app.screen is shown.app.chat)


async def test_page_keys_that_are_ahead_of_the_palette_are_harmless() -> None:
    async with without_engine() as shown:
        await shown.burst("ctrl+p", "pagedown", "pageup", "pagedown")
        await shown.shows("Attach a file")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)


async def test_slow_motion_of_an_answer_on_the_card_begins_with_the_next() -> None:
    async with without_engine() as shown:
        for device in ("cpu", "cuda:0"):
            shown.session.handle(replace(READY, device=device))
            shown.session.set_block_view("live")
            await shown.ask("One")
            await shown.until(lambda: shown.session.turn)
            await shown.press("ctrl+t")
            await shown.shows("slow motion: 4 steps/s")
            assert (SLOW_LATER in shown.text) == (device != "cpu")
            await answer(shown, "first")


async def test_a_system_prompt_holds_however_its_window_is_left() -> None:
    async with without_engine() as shown:
        session = shown.session
        for how in ("by its key", "by a command"):
            await shown.press("f9")
            await shown.until(lambda: isinstance(shown.app.screen, ChatSettingsScreen))
            await shown.shows("System prompt")
            shown.app.screen.query_one(TextArea).text = f"Be brief, {how}."
            if how == "by its key":
                await shown.press("escape")
            else:
                shown.app.action_tab(CHAT)
            await shown.until(lambda: shown.app.screen is shown.app.chat)
            await shown.until(
                lambda how=how: session.conversation.settings.system == f"Be brief, {how}."
            )


async def test_page_keys_in_a_window_that_is_too_small_are_harmless() -> None:
    async with without_engine() as shown:
        await shown.shows("Ask  (Tab, then Enter)")
        await shown.pilot.resize_terminal(50, 15)
        await shown.until(lambda: shown.app.focused is None)
        await shown.press("escape")
        await shown.until(lambda: prompt(shown).has_focus)
        await shown.press("up")
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await shown.press("pagedown", "escape")
        await shown.until(lambda: prompt(shown).has_focus)


async def test_what_was_typed_before_an_edit_comes_back() -> None:
    """When it is sent, when it fits in the end, and when another chat is opened; what is typed
    right behind Enter stays."""
    async with without_engine() as shown:
        session = shown.session
        for question in ("Zero", "One"):
            await shown.ask(question)
            await answer(shown, "first")
        await shown.type("a draft")
        await shown.press("ctrl+g")
        await shown.until(lambda: prompt(shown).text == "One")
        await shown.burst("enter", "!")
        await shown.until(lambda: prompt(shown).text == "a draft!")
        await answer(shown, "second")
        await shown.press("ctrl+g")
        await shown.until(lambda: prompt(shown).text == "One")
        await shown.press("ctrl+n")
        await shown.until(lambda: prompt(shown).text == "a draft!")
        assert EDITING not in shown.text
        shown.app.chat.open(1, "Zero")
        await shown.until(lambda: session.conversation.entries)
        await shown.press("ctrl+g", "enter")
        await too_long(shown)
        await shown.until(lambda: prompt(shown).text == "One")
        await shown.press("?")
        await shown.until(lambda: prompt(shown).text == "One?")
        session.rename(1, "Renamed")
        await shown.shows("Renamed")
        assert prompt(shown).text == "One?"
        shown.app.chat.query(Button).first().press()
        await shown.until(lambda: prompt(shown).text == "a draft!")
        assert [e.content for e in session.conversation.entries][2:] == ["One?", ""]
        await shown.until(lambda: EDITING not in shown.text)


async def test_a_message_that_comes_back_is_not_written_over() -> None:
    async with without_engine() as shown:
        session = shown.session
        await shown.ask("Far too long")
        await shown.type("next")
        await too_long(shown)
        await shown.shows("2,100 tokens long")
        assert prompt(shown).text == "next"
        prompt(shown).focus()
        await shown.until(lambda: prompt(shown).has_focus)
        await shown.press("enter")
        await answer(shown, "fine")
        assert [m.content for m in session.store.messages(1)] == ["next", "fine", "Far too long"]
        await shown.press("up", "up")
        await shown.until(lambda: prompt(shown).text == "Far too long")


async def test_changed_prompts_of_before_are_there_on_the_way_back() -> None:
    async with without_engine() as shown:
        shown.session.asked += ["one", "two"]
        await shown.type("draft")
        steps = {"two": "up", "two!": "!", "one": "up", "two! ": "down", "draft": "down"}
        for text, key in steps.items():
            await shown.press(key)
            await shown.until(lambda text=text: prompt(shown).text == text.strip())
        await shown.press("up")
        prompt(shown).put("other")
        await shown.press("down", "!")
        await shown.until(lambda: prompt(shown).text == "other!")


async def test_a_version_far_above_stays_selected() -> None:
    store = Store.open(None)
    chat = store.create_chat("Long")
    question = store.add_message(chat, "user", "Q")
    for version in ("old", "new"):
        last = store.add_message(chat, "assistant", version, after=question)
        for number in range(20):
            last = store.add_message(chat, "user", f"{version} {number}", after=last)
    async with without_engine(store) as shown:
        transcript = shown.app.chat.query_one(Transcript)
        shown.app.chat.open(chat, "Long")
        await shown.until(lambda: transcript.conversation.entries)
        transcript.focus()
        await transcript.action_scroll_home()
        await transcript.show_entry(shown.session.conversation.entries[1])
        for key, words in (("left_square_bracket", "old"), ("right_square_bracket", "new")):
            await shown.burst(key, key)
            await shown.until(
                lambda words=words: (e := transcript.selected) is not None and e.content == words
            )
            await shown.shows(f"{words} 0")


async def test_the_start_card_knows_which_chats_are_gone() -> None:
    store = Store.open(None)
    for title in ("Kept", "Doomed"):
        store.add_message(store.create_chat(title), "user", title)
    async with without_engine(store) as shown:
        await shown.shows("Doomed")
        await shown.press("ctrl+o")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.press("ctrl+d")
        await shown.shows("Deleted “Doomed”")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        await shown.until(lambda: "Kept" in shown.text and "Doomed" not in shown.text)
        assert shown.app.chat.query(WelcomeCard)


async def test_news_of_the_engine_while_a_tab_is_being_opened() -> None:
    """Its bar has no parts yet; once it has them, they say what answers."""
    async with without_engine() as shown:
        shown.app.push_screen("finetune")
        for _ in range(40):  # turns of the loop, in one of which the bar is there and empty
            shown.app.chat.engine_changed()
            await asyncio.sleep(0)
        await shown.shows("1 Prompts")
        await shown.until(lambda: shown.app.chat.what_answers in shown.text.splitlines()[0])
