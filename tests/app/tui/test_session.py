"""The chat as a state machine: what goes to the engine, to the store and to the view."""

from pathlib import Path

import pytest

from app.client import EngineDied
from app.protocol import (
    Block,
    Chat,
    Done,
    Error,
    Hello,
    Loading,
    Pace,
    Prefill,
    Ready,
    Stop,
)
from app.settings import SettingsFile
from app.store import Store
from app.tui import status
from app.tui.conversation import Entry, request_messages, title_of
from app.tui.state import Phase
from tests.app.tui.bench import Bench
from tests.app.tui.recording import READY


def test_a_question_and_its_answer() -> None:
    bench = Bench(system="Be brief.", seed=7, preset="speed").ready()
    assert bench.session.ask("Hello\nthere") is None
    assert bench.saved() == [("user", "Hello\nthere", None)]
    assert bench.chat.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello\nthere"},
    ]
    assert bench.chat.config["preset"] == "speed"
    assert bench.chat.config["seed"] == 7
    bench.session.handle(Prefill(bench.turn.id, 32, 32, 0, 0.1))
    bench.block("Hi ")
    assert bench.saved()[1] == ("assistant", "Hi ", None)
    bench.block("you.", 1)
    bench.done("Hi you.")
    assert bench.saved()[1] == ("assistant", "Hi you.", "end")
    assert bench.session.turn is None
    assert bench.session.conversation.title == "Hello there"
    assert bench.view.names[-5:] == [
        "text_added", "live_changed", "text_added", "live_changed", "turn_ended",
    ]  # fmt: skip
    bench.sent.clear()
    bench.session.ask("More")
    assert [m["content"] for m in bench.chat.messages] == [
        "Be brief.", "Hello\nthere", "Hi you.", "More",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "   ", "\n\n\t"])
def test_an_empty_prompt_is_not_sent(text: str) -> None:
    bench = Bench().ready()
    assert bench.session.ask(text) == "Type a message first."
    assert (bench.sent, bench.store.chats()) == ([], [])


def test_one_answer_at_a_time() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    assert bench.session.ask("Two") == "An answer is being written: Esc stops it."
    assert bench.session.again() == "An answer is being written: Esc stops it."
    bench.session.new_chat()
    assert "“One”" in (bench.session.ask("Three") or "")
    assert len(bench.saved()) == 1


def test_the_first_message_waits_for_the_engine() -> None:
    bench = Bench()
    bench.session.handle(Hello("1", 1))
    assert bench.session.ask("Early") is None
    assert bench.sent == []
    assert bench.saved() == [("user", "Early", None)]
    assert (
        bench.session.ask("Later") == "A message already waits for the engine: Esc takes it back."
    )
    bench.session.handle(Loading("reading weights", 5, 10))
    words = status.doing(bench.session.engine, bench.turn, here=True, now=0.0)
    assert words == "Your message waits · Reading weights, 0.0 of 0.0 MB"
    bench.session.handle(READY)
    assert bench.chat.messages[-1]["content"] == "Early"


def test_a_waiting_message_can_be_taken_back_and_asked_again() -> None:
    bench = Bench()
    bench.session.ask("Early")
    assert bench.session.stop()
    assert bench.saved()[1] == ("assistant", "", "stopped")
    bench.session.handle(READY)
    assert not [r for r in bench.sent if isinstance(r, Chat)]
    assert bench.session.again() is None
    assert bench.chat.messages == [{"role": "user", "content": "Early"}]


def test_stop_keeps_the_text() -> None:
    bench = Bench().ready()
    bench.session.ask("Long one")
    bench.block("Half an ")
    assert bench.session.stop()
    assert bench.sent[-1] == Stop(bench.turn.id)
    assert not bench.session.stop()
    bench.done("Half an answer", "stopped")
    assert bench.saved()[1] == ("assistant", "Half an answer", "stopped")
    assert not bench.session.stop()


def test_messages_of_an_answer_that_is_over_are_dropped() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    old = bench.turn.id
    bench.done("First")
    bench.session.ask("Two")
    bench.session.handle(Block(old, 1, "ghost", 32, 4, 4, 0, 0.1, 0.2))
    bench.session.handle(Done(old, "end", "ghost", {}))
    assert bench.turn.answer.content == ""


def test_again_keeps_the_earlier_answer_as_a_version_and_sends_the_latest() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.done("First")
    bench.session.again()
    bench.done("Second")
    talk = bench.session.conversation
    assert [e.content for e in talk.entries] == ["One", "Second"]
    assert (talk.entries[1].version, talk.entries[1].versions) == (2, 2)
    assert [m.content for m in bench.store.versions(talk.entries[1].id or 0)] == ["First", "Second"]
    bench.sent.clear()
    bench.session.ask("Two")
    assert [m["content"] for m in bench.chat.messages] == ["One", "Second", "Two"]


def test_nothing_to_answer_again() -> None:
    assert Bench().ready().session.again() == "There is no question to answer again."


def test_a_prompt_that_does_not_fit_comes_back_whole() -> None:
    bench = Bench().ready()
    bench.session.ask("Fits")
    bench.done("Yes")
    bench.session.ask("Far too long")
    bench.error("prompt_too_long", counts={"prompt": 2100, "context": 2048})
    assert bench.view.names[-2:] == ["turn_unsent", "problem"]
    (problem,) = bench.view.problems
    assert "2,100 tokens" in problem.message
    assert "holds 2,048" in problem.message
    assert problem.actions == ("fit", "move")
    talk = bench.session.conversation
    assert [e.content for e in talk.entries] == ["Fits", "Yes"]
    assert bench.saved()[-1] == ("user", "Far too long", "unsent")
    again = Bench(bench.store)
    again.session.open_chat(talk.id or 0, talk.title)
    assert again.session.conversation.unsent is not None
    assert again.session.conversation.unsent.content == "Far too long"
    bench.sent.clear()
    bench.session.ask("Shorter")
    assert bench.saved()[-1] == ("user", "Shorter", "sent")
    assert [m["content"] for m in bench.chat.messages] == ["Fits", "Yes", "Shorter"]


def test_a_failed_answer_keeps_its_text() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Some")
    bench.error("memory", detail="traceback")
    assert bench.saved()[1] == ("assistant", "Some", "error")
    (problem,) = bench.view.problems
    assert (problem.actions, problem.detail) == (("again",), "traceback")
    assert bench.session.engine.usable


def test_the_engine_dies_in_the_middle() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Kept ")
    bench.session.handle(EngineDied(-9, "last words"))
    assert bench.saved()[1] == ("assistant", "Kept ", "error")
    assert bench.session.engine.phase is Phase.DEAD
    assert bench.view.problems[0].actions == ("restart",)
    assert bench.session.ask("Two") is None
    assert bench.view.names[-1] == "engine_wanted"
    bench.session.engine_starting()
    bench.session.handle(READY)
    chat = [r for r in bench.sent if isinstance(r, Chat)][-1]
    assert [m["content"] for m in chat.messages] == ["One", "Kept ", "Two"]


def test_another_engine_in_the_middle_cuts_the_answer_short() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Kept ")
    bench.session.engine_starting()  # the user restarts it, or chooses another model
    assert bench.session.turn is None
    assert bench.saved()[1] == ("assistant", "Kept ", "error")
    bench.session.handle(READY)
    assert bench.session.ask("Two") is None
    chat = [r for r in bench.sent if isinstance(r, Chat)][-1]
    assert [m["content"] for m in chat.messages] == ["One", "Kept ", "Two"]


def test_a_death_leaves_a_waiting_message_waiting() -> None:
    bench = Bench()
    bench.session.ask("One")
    bench.session.handle(EngineDied(1, ""))
    assert bench.session.turn is not None
    bench.session.engine_starting()
    bench.session.handle(READY)
    assert bench.chat.messages[-1]["content"] == "One"


def test_a_card_that_failed_needs_a_new_engine() -> None:
    """Asking the same process again would fail again: the card offers a restart, and a message that
    comes before it starts one."""
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Kept ")
    bench.session.handle(Error("device", "The card failed.", "Restart.", "", bench.turn.id))
    assert bench.session.turn is None
    assert bench.saved()[1] == ("assistant", "Kept ", "error")
    assert bench.view.problems[0].actions == ("restart",)
    bench.session.ask("Two")
    assert bench.view.names[-1] == "engine_wanted"


def test_a_model_that_does_not_load() -> None:
    bench = Bench()
    bench.session.handle(Error("load", "There is no folder x.", "Name one.", "traceback"))
    assert bench.session.engine.phase is Phase.FAILED
    assert bench.view.problems[0].title == "The model could not be loaded"
    bench.session.ask("One")
    assert bench.view.names[-1] == "engine_wanted"


def test_leaving_a_chat_lets_its_answer_go_on() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    talk = bench.session.conversation
    bench.session.new_chat()
    assert bench.session.turn_here is None
    assert not bench.session.stop()
    bench.block("Still ")
    bench.session.open_chat(talk.id or 0, "One")
    assert bench.session.conversation is talk
    assert bench.session.turn_here is bench.turn
    bench.done("Still here")
    assert bench.saved()[1] == ("assistant", "Still here", "end")


def test_unfinished_answers_of_a_killed_window_are_interrupted() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Cut ")
    other = Bench(bench.store)
    (chat,) = bench.store.chats()
    other.session.open_chat(chat.id, chat.title)
    assert other.session.conversation.entries[1].reason == "interrupted"
    bench.done("Cut off? No.")
    assert bench.saved()[1] == ("assistant", "Cut off? No.", "end")


def test_closing_saves_what_was_written() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.block("Some")
    bench.session.close()
    assert bench.saved()[1] == ("assistant", "Some", "stopped")


def test_deleting_the_chat_that_is_being_answered() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    id = bench.session.conversation.id
    assert id is not None
    bench.session.delete(id)
    assert isinstance(bench.sent[-1], Stop)
    assert bench.store.chats() == []
    assert bench.session.conversation.entries == []
    assert bench.session.turn is None


def test_another_window_deletes_the_chat() -> None:
    bench = Bench().ready()
    bench.session.ask("One")
    bench.store.delete_chat(bench.session.conversation.id or 0)
    bench.block("Text ")
    bench.block("more ", 1)
    bench.done("Text more ")
    assert [p.title for p in bench.view.problems] == ["This chat is not saved"]
    assert bench.session.conversation.entries[1].content == "Text more "


def test_a_store_that_stops_writing_is_told_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    bench = Bench(store).ready()
    bench.session.ask("One")
    store._connection.execute("PRAGMA query_only = ON")
    for index in range(3):
        bench.block("text ", index)
    bench.done("text text text ")
    assert [p.title for p in bench.view.problems] == ["This chat is not saved"]
    assert bench.session.conversation.entries[1].content == "text text text "


def test_slow_motion_sets_the_pace_also_of_a_fresh_engine() -> None:
    bench = Bench(slow_steps_per_second=4)
    bench.session.handle(READY)
    assert bench.sent == [Pace(0.0)]
    bench.session.set_block_view("slow")
    assert bench.sent[-1] == Pace(0.25)
    bench.session.handle(READY)
    assert bench.sent[-1] == Pace(0.25)
    assert SettingsFile.open().settings.block_view == "slow"
    bench.session.set_block_view("off")
    assert bench.sent[-1] == Pace(0.0)


def test_settings_that_cannot_be_saved_still_hold(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text("this is = not = toml")
    bench = Bench().ready()
    for _ in range(3):
        bench.session.set_block_view("slow")
    assert bench.session.settings.block_view == "slow"
    assert [p.title for p in bench.view.problems] == ["This setting is not saved"]


def test_answers_without_text_are_not_sent() -> None:
    entries = [Entry("user", "a"), Entry("assistant", " "), Entry("user", "b"),
               Entry("assistant", "old"), Entry("assistant", "new"), Entry("user", "c"),
               Entry("assistant", "x")]  # fmt: skip
    assert [m["content"] for m in request_messages(entries, " ")] == ["a", "b", "new", "c"]


def test_a_chat_is_named_by_its_first_message() -> None:
    assert title_of(" How\n do  I? ") == "How do I?"
    assert title_of("word " * 20) == "word " * 11 + "word…"
    assert len(title_of("x" * 200)) == 60


def test_the_top_bar_and_status_words() -> None:
    bench = Bench()
    engine, settings = bench.session.engine, bench.session.settings
    assert status.what_answers(engine, settings) == "quality preset"
    assert status.engine_words(engine) == "Starting the engine"
    bench.session.handle(Loading("reading weights", 4_900_000_000, 10_900_000_000))
    assert status.engine_words(engine) == "Reading weights, 4.9 of 10.9 GB"
    bench.session.handle(
        Ready("LLaDA2.1-mini", "/m", "cuda:0", "/runs/sql", 1, 32768, 32, 1, "bfloat16", 1.0)
    )
    words = status.what_answers(bench.session.engine, settings)
    assert words == "LLaDA2.1-mini · sql · cuda:0 · quality preset"
    bench.session.ask("One")
    doing = status.doing(
        bench.session.engine, bench.turn, here=True, now=(bench.turn.sent_at or 0) + 2
    )
    assert doing == "Reading the prompt · 2.00 s"
