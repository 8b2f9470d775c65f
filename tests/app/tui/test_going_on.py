"""Answers that are continued, and chats that outgrow the context."""

import pytest

from app.client import EngineDied
from app.protocol import Prefill
from app.tui import conversation as conversations
from app.tui.figures import stats_lines
from app.tui.fitting import Counts, leave_out, without_oldest
from tests.app.tui.bench import Bench


def stopped(bench: Bench, question: str = "One", text: str = "Half an ") -> None:
    bench.session.ask(question)
    bench.block(text)
    bench.session.stop()
    bench.done(text, "stopped")
    bench.sent.clear()


def test_a_stopped_answer_goes_on_from_its_text() -> None:
    bench = Bench(max_new_tokens=64).ready()
    stopped(bench)
    assert bench.session.go_on() is None
    assert bench.chat.continue_text == "Half an "
    assert [m["content"] for m in bench.chat.messages] == ["One"]
    assert bench.chat.config["max_new_tokens"] == 64
    bench.session.handle(Prefill(bench.turn.id, 32, 32, 0, 0.1, 45))
    bench.block("answer.")
    assert bench.saved()[1] == ("assistant", "Half an answer.", "stopped")
    bench.done("answer. Yes.")
    assert bench.saved()[1] == ("assistant", "Half an answer. Yes.", "end")
    (entry,) = [e for e in bench.session.conversation.entries if e.role == "assistant"]
    assert entry.stats is not None
    assert entry.stats["earlier"] == [
        {"tokens": 32, "forwards": 4, "measured": True, "reason": "stopped"}
    ]
    assert entry.stats["context"] == 45 + 32
    lines = stats_lines(entry.stats, entry.reason).splitlines()
    assert lines == ["part 1: 32 tok · 4 fwd · stopped", "part 2: 32 tok · 4 fwd"]


def test_an_answer_continued_twice_keeps_every_part() -> None:
    bench = Bench().ready()
    stopped(bench)
    bench.session.go_on()
    bench.done("whole ", "length")
    bench.session.go_on()
    bench.sent.clear()
    bench.done("answer.")
    stats = bench.session.conversation.entries[-1].stats
    assert [part["reason"] for part in (stats or {})["earlier"]] == ["stopped", "length"]
    assert bench.saved()[1][1] == "Half an whole answer."


def test_half_a_character_is_not_gone_on_from() -> None:
    bench = Bench().ready()
    stopped(bench, text="caf\ufffd")
    bench.session.go_on()
    assert bench.chat.continue_text == "caf"
    bench.block("é")
    bench.done("é")
    assert bench.saved()[1][1] == "café"


def test_going_on_that_adds_nothing_changes_nothing() -> None:
    bench = Bench().ready()
    stopped(bench)
    before = bench.session.conversation.entries[-1].stats
    bench.session.go_on()
    bench.session.handle(EngineDied(-9, ""))
    answer = bench.session.conversation.entries[-1]
    assert (answer.content, answer.reason, answer.stats) == ("Half an ", "stopped", before)


def test_what_cannot_be_continued() -> None:
    bench = Bench().ready()
    assert bench.session.go_on() == "There is no answer to continue."
    bench.session.ask("One")
    assert bench.session.go_on() == "An answer is being written: Esc stops it."
    bench.done("Whole.")
    assert bench.session.go_on() == "This answer is complete."
    bench.session.ask("Two")
    bench.done("", "stopped")
    assert "no text" in (bench.session.go_on() or "")


def refused(bench: Bench, prompt: int = 2100) -> None:
    bench.error("prompt_too_long", counts={"prompt": prompt, "context": 2048})


def full_chat(bench: Bench) -> None:
    for number in range(4):
        bench.session.ask(f"Question {number} " + "x" * 100)
        bench.done(f"Answer {number} " + "y" * 100)
    bench.session.ask("The last one")
    refused(bench)
    bench.sent.clear()


def test_the_oldest_messages_are_left_out_when_the_user_says_so() -> None:
    bench = Bench().ready()
    full_chat(bench)
    assert bench.session.conversation.unsent is not None
    assert bench.session.fit("The last one") is None
    first = bench.turn.left_out
    assert first % 2 == 0
    assert [m["content"] for m in bench.chat.messages][-1] == "The last one"
    assert bench.chat.messages[0]["role"] == "user"
    assert len(bench.chat.messages) == 9 - first
    bench.sent.clear()
    refused(bench)  # the guess was too small
    assert bench.turn.left_out > first
    bench.done("Fits.")
    assert len(bench.saved()) == 10
    answer = bench.session.conversation.entries[-1]
    assert (answer.stats or {})["left_out"] == bench.session.last.left_out  # type: ignore[union-attr]


def test_an_answer_goes_on_without_what_it_was_begun_without() -> None:
    bench = Bench().ready()
    full_chat(bench)
    bench.session.fit("The last one")
    left_out = bench.turn.left_out
    bench.done("Half", "length")
    bench.sent.clear()
    assert bench.session.go_on() is None
    assert len(bench.chat.messages) == 9 - left_out
    bench.done(" an answer")
    assert (bench.session.conversation.entries[-1].stats or {})["left_out"] == left_out


def test_a_message_that_is_too_long_alone_comes_back_without_a_choice() -> None:
    bench = Bench().ready()
    full_chat(bench)
    bench.session.fit("The last one")
    while bench.session.turn is not None:
        refused(bench)
    assert bench.view.problems[-1].actions == ()
    assert bench.session.conversation.unsent is not None
    assert len(bench.session.conversation.entries) == 8


def test_the_question_can_move_to_a_new_chat() -> None:
    bench = Bench().ready()
    full_chat(bench)
    old = bench.session.conversation
    assert bench.session.move("The last one, edited") is None
    assert [m["content"] for m in bench.chat.messages] == ["The last one, edited"]
    bench.done("Yes.")
    assert old.id is not None
    assert conversations.load(bench.store, old.id, "").unsent is None
    assert len(bench.store.chats()) == 2


def test_an_answer_that_fills_the_context_offers_the_choice() -> None:
    bench = Bench().ready()
    for number in range(3):
        bench.session.ask(f"Question {number}")
        bench.done("x" * 400)
    bench.session.ask("Long")
    bench.session.handle(Prefill(bench.turn.id, 2000, 2000, 0, 0.1, 2000))
    bench.done("It goes ", "context")
    assert bench.view.problems[-1].actions == ("fit", "move")
    bench.sent.clear()
    assert bench.session.fit("something else that is being typed") is None
    assert bench.chat.continue_text == "It goes "
    assert bench.turn.left_out >= 2
    bench.done("on.")
    assert bench.saved()[-1] == ("assistant", "It goes on.", "end")
    assert "nothing" in (bench.session.fit("") or "")


def test_an_answer_with_no_room_to_go_on_stays_as_it_was() -> None:
    bench = Bench().ready()
    stopped(bench)
    bench.session.go_on()
    refused(bench)
    answer = bench.session.conversation.entries[-1]
    assert (answer.content, answer.reason) == ("Half an ", "stopped")
    assert [e.role for e in bench.session.conversation.entries] == ["user", "assistant"]
    assert bench.session.conversation.unsent is None


@pytest.mark.parametrize("already", [0, 2, 4])
def test_leaving_out_makes_progress_and_keeps_the_question(already: int) -> None:
    said = [
        {"role": role, "content": text * 50} for text in "abc" for role in ("user", "assistant")
    ] + [{"role": "user", "content": "q"}]
    messages = [{"role": "system", "content": "s"}, *said]
    number = leave_out(messages, already, Counts(2049, 2048), max_new_tokens=1024)
    assert already < number <= 6
    kept = without_oldest(messages, number)
    assert (kept[0], kept[-1], kept[1]["role"]) == (messages[0], said[-1], "user")
