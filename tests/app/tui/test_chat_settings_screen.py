"""A chat's own settings and system prompt, by keys; and what a reopened chat still knows."""

from pathlib import Path

from textual.widgets import Input, OptionList, TextArea

from app.chat_settings import ChatSettings
from app.paths import paths
from app.store import Store
from app.tui.chat_values import BUILT_IN, library, name_of
from app.tui.figures import NOTHING
from app.tui.screens.chat_settings import ChatSettingsScreen
from app.tui.widgets.prompt import Prompt
from tests.app.tui.driver import window
from tests.app.tui.recording import Script


async def test_a_chat_decides_for_itself(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("One").write(tmp_path / "t")
    async with window(trace, size=(100, 40), system="Be brief.") as shown:
        await shown.ready()
        await shown.press("f9")
        await shown.until(lambda: isinstance(shown.app.screen, ChatSettingsScreen))
        screen = shown.app.screen
        await shown.shows("Settings of this chat")
        assert screen.query_one(TextArea).text == "Be brief."
        await shown.press("enter")  # the preset: its next choice
        await shown.until(lambda: shown.session.settings_here.preset == "careful")
        await shown.shows("this chat")
        await shown.press("down", "enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.press("9", "enter")
        await shown.shows("less than or equal to 1")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await shown.press("tab", "!", "f8")
        await shown.shows("Kept: ")
        await shown.press("tab", "down", "enter")
        await shown.shows("This chat has the prompt")
        await shown.press("delete")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        await shown.shows("careful preset")
        assert shown.session.settings.preset == "quality"
        await shown.ask("Hello")
        await shown.answered()
        decided = shown.session.conversation.settings
        assert decided.preset == "careful"
        assert decided.system
        await shown.press("ctrl+n")
        await shown.shows("quality preset")
        id = shown.app.session.store.chats()[0].id
        assert shown.app.session.store.chat_settings(id) == decided
        assert shown.session.conversation.settings == ChatSettings()


def test_the_library_has_the_users_prompts_first_and_by_their_own_words() -> None:
    store = Store.open(None)
    assert library(store.prompts()) == list(BUILT_IN)
    store.save_prompt("Brief", "In one word.")
    names = [(prompt.name, prompt.content) for prompt in library(store.prompts())]
    assert names[0] == ("Brief", "In one word.")
    assert len(names) == len(BUILT_IN)
    assert name_of("Be \n kind") == "Be kind"
    assert len(name_of("word " * 40)) == 40


async def test_a_reopened_chat_knows_its_context_and_every_prompt(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("One two three").write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("Asked before")
        await shown.answered()
        await shown.shows("43 / 2,048")
    async with window(trace) as shown:
        await shown.ready()
        (chat,) = shown.session.store.chats()
        await shown.press("up")
        prompt = shown.app.chat.query_one(Prompt)
        await shown.until(lambda: prompt.text == "Asked before")
        prompt.text = ""
        await shown.shows(f"{NOTHING} / 2,048")
        shown.app.chat.open(chat.id, chat.title)
        await shown.shows("43 / 2,048")
        await shown.pilot.resize_terminal(80, 30)
        await shown.shows("context 43 / 2,048")
    assert paths().store.exists()


def test_questions_of_all_chats_that_are_there() -> None:
    store = Store.open(None)
    for number in range(3):
        chat = store.create_chat()
        store.add_message(chat, "user", f"Q{number}")
        store.add_message(chat, "assistant", "A")
    store.delete_chat(chat)
    assert store.questions(10) == ["Q0", "Q1"]
    assert store.questions(1) == ["Q1"]
