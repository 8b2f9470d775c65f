"""Versions of answers and questions: made, leafed through, kept, and given back when they fail."""

from pathlib import Path

from app.chat_settings import ChatSettings
from app.store import Store
from app.tui import conversation as conversations
from app.tui.screens.chat_field import EDITING
from app.tui.widgets.messages import Answer, UserMessage
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from tests.app.tui.bench import Bench
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script


def said(bench: Bench) -> list[str]:
    return [entry.content for entry in bench.session.conversation.entries]


def turn(bench: Bench, question: str, answer: str) -> None:
    assert bench.session.ask(question) is None
    bench.done(answer)
    bench.sent.clear()


def again(bench: Bench, place: int, answer: str) -> None:
    assert bench.session.again(bench.session.conversation.entries[place]) is None
    bench.done(answer)


def leaf(bench: Bench, place: int, step: int) -> str | None:
    return bench.session.leaf(bench.session.conversation.entries[place], step)


def test_answers_have_versions_and_each_its_own_continuation() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    turn(bench, "Two", "after the first")
    assert bench.session.again(bench.session.conversation.entries[1]) is None
    assert [m["content"] for m in bench.chat.messages] == ["One"]
    assert said(bench) == ["One", ""]
    bench.done("second")
    answer = bench.session.conversation.entries[1]
    assert (answer.version, answer.versions) == (2, 2)
    turn(bench, "Other", "after the second")
    assert leaf(bench, 1, -1) is None
    assert said(bench) == ["One", "first", "Two", "after the first"]
    assert leaf(bench, 1, -1) == "This is the first version."
    assert leaf(bench, 0, 1) == "There is only one version of this message."
    assert leaf(bench, 1, 1) is None
    assert leaf(bench, 1, 1) == "This is the newest version."
    assert said(bench) == ["One", "second", "Other", "after the second"]
    id = bench.session.conversation.id
    assert id is not None
    again_open = conversations.load(bench.store, id, "")
    assert [e.content for e in again_open.entries] == said(bench)
    assert again_open.entries[1].versions == 2


def test_a_question_is_edited_and_sent_as_a_version() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    turn(bench, "Two", "second")
    assert bench.session.edit(bench.session.conversation.entries[1]) is None
    assert bench.session.conversation.editing is bench.session.conversation.entries[0]
    assert bench.session.ask("One, better") is None
    assert [m["content"] for m in bench.chat.messages] == ["One, better"]
    bench.done("better")
    question = bench.session.conversation.entries[0]
    assert (question.version, question.versions) == (2, 2)
    assert bench.session.conversation.editing is None
    turn(bench, "Three", "third")
    assert said(bench) == ["One, better", "better", "Three", "third"]
    assert leaf(bench, 0, -1) is None
    assert said(bench) == ["One", "first", "Two", "second"]
    assert len(bench.store.chats()) == 1


def test_an_edited_question_that_does_not_fit_leaves_what_it_replaced() -> None:
    bench = Bench().ready()
    for number in range(3):
        turn(bench, f"Q{number}", f"A{number}")
    again(bench, 5, "another A2")
    before = said(bench)
    bench.session.edit(bench.session.conversation.entries[2])
    bench.session.ask("x" * 100)
    bench.error("prompt_too_long", counts={"prompt": 2100, "context": 2048})
    talk = bench.session.conversation
    assert said(bench) == before
    assert (talk.unsent and talk.unsent.content) == "x" * 100
    assert talk.editing is talk.entries[2]
    assert [row[1] for row in bench.saved()] == [*before, "x" * 100]
    bench.sent.clear()
    assert bench.session.ask("shorter") is None
    bench.done("fits")
    assert said(bench) == ["Q0", "A0", "shorter", "fits"]
    assert talk.entries[2].versions == 2
    assert [row[1] for row in bench.saved()][:4] == said(bench)


def test_an_answer_that_does_not_come_leaves_the_one_that_was_there() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    bench.session.again()
    bench.error("prompt_too_long", counts={"prompt": 2100, "context": 2048})
    assert said(bench) == ["One", "first"]
    assert bench.session.conversation.unsent is None


def test_no_version_is_shown_while_an_answer_is_written() -> None:
    bench = Bench().ready()
    turn(bench, "One", "first")
    again(bench, 1, "second")
    bench.session.ask("Two")
    assert leaf(bench, 1, -1) == "An answer is being written: Esc stops it."
    assert bench.session.edit(None) == "An answer is being written: Esc stops it."


def test_a_chat_has_settings_of_its_own() -> None:
    bench = Bench(preset="quality", threshold=0.6, system="Be brief.").ready()
    bench.session.set_chat_settings(ChatSettings(preset="speed", system="Be kind.", seed=3))
    bench.session.ask("One")
    assert bench.chat.messages[0] == {"role": "system", "content": "Be kind."}
    assert (bench.chat.config["preset"], bench.chat.config["seed"]) == ("speed", 3)
    assert "threshold" not in bench.chat.config
    bench.done("first")
    bench.sent.clear()
    first = bench.session.conversation
    bench.session.new_chat()
    bench.session.ask("Two")
    assert bench.chat.messages[0]["content"] == "Be brief."
    assert bench.chat.config["preset"] == "quality"
    bench.done("second")
    assert first.id is not None
    bench.session.open_chat(first.id, "")
    assert bench.session.conversation is not first
    assert bench.session.settings_here.system == "Be kind."
    bench.session.set_chat_settings(ChatSettings())
    assert bench.store.chat_settings(first.id) == ChatSettings()


def contents(shown: Window) -> list[str]:
    talk = shown.app.chat.query_one("Talk")
    return [w.entry.content for w in talk.children if isinstance(w, UserMessage | Answer)]


def selected(shown: Window) -> str:
    entry = shown.app.chat.query_one(Transcript).selected
    return entry.content if entry is not None else ""


async def test_versions_with_keys(tmp_path: Path) -> None:
    script = Script(pace=0.001)
    for text in ("first", "then", "second", "better"):
        script.answer(text)
    async with window(script.write(tmp_path / "t"), store=Store.open(None)) as shown:
        prompt = shown.app.chat.query_one(Prompt)
        await shown.ready()
        for text in ("One", "Two"):
            await shown.ask(text)
            await shown.answered()
        await shown.press("escape")
        for content in ("Two", "first"):
            await shown.press("up")
            await shown.until(lambda content=content: selected(shown) == content)
        await shown.press("ctrl+r")
        await shown.answered()
        await shown.until(lambda: contents(shown) == ["One", "second"])
        await shown.shows("version 2/2 · 1 tok")
        await shown.press("left_square_bracket")
        await shown.until(lambda: contents(shown) == ["One", "first", "Two", "then"])
        await shown.shows("version 1/2")
        await shown.press("right_square_bracket")
        await shown.until(lambda: contents(shown) == ["One", "second"])
        await shown.press("escape")
        await shown.until(lambda: prompt.has_focus)
        await shown.type("a draft")
        await shown.press("ctrl+g")
        await shown.until(lambda: prompt.text == "One")
        await shown.shows(EDITING)
        await shown.press("escape")
        await shown.until(lambda: prompt.text == "a draft")
        assert EDITING not in shown.text
        await shown.press("ctrl+g")
        await shown.until(lambda: prompt.text == "One")
        await shown.press("!", "enter")
        await shown.answered()
        await shown.until(lambda: contents(shown) == ["One!", "better"])
        await shown.until(lambda: prompt.text == "a draft")
        await shown.shows("version 2/2")
