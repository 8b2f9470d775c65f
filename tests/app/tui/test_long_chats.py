"""Long chats: few answers are mounted wherever one reads, and the first turn can be reached."""

from pathlib import Path

import pytest

from app.paths import paths
from app.store import Store
from app.tui.conversation import Entry
from app.tui.part import Part, at_edge, grown
from app.tui.widgets.messages import Answer
from app.tui.widgets.transcript import MOST, Transcript
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script

TURNS = 24


def talk(*answers: int) -> list[Entry]:
    """Questions, each with so many answers."""
    return [Entry(role, "") for count in answers for role in ("user", *["assistant"] * count)]


def test_a_part_begins_with_a_question_and_ends_with_an_answer() -> None:
    entries = talk(1, 2, 1, 0, 1)
    assert at_edge(entries, 1, 1) == Part(8, 10, 10)
    assert at_edge(entries, 1, 2) == Part(5, 10, 10)
    assert at_edge(entries, 1, 3) == Part(2, 10, 10)
    assert at_edge(entries, -1, 1) == Part(0, 2, 10)
    assert at_edge(entries, -1, 9) == Part(0, 10, 10)
    assert at_edge([], 1, 3) == Part()
    assert (Part(3, 8, 10).hidden(-1), Part(3, 8, 10).hidden(1)) == (3, 2)


@pytest.mark.parametrize("turns", [0, 1, 7, 1000])
def test_walking_up_and_down_again_passes_every_message(turns: int) -> None:
    entries = talk(*[1] * turns)
    part = at_edge(entries, 1, 8)
    seen = set(range(part.first, part.end))
    for side in (-1, 1):
        while part.hidden(side):
            before, part = part, grown(part, entries, side, 6, MOST)
            assert part.end - part.first <= 2 * MOST
            assert max(before.first, part.first) < min(before.end, part.end)  # something stays
            seen |= set(range(part.first, part.end))
    assert seen == set(range(len(entries)))
    assert part.end == len(entries)


def long_chat(turns: int) -> tuple[Store, int]:
    store = Store.open(paths().store)
    chat = store.create_chat("Long")
    for number in range(turns):
        store.add_message(chat, "user", f"question {number}.")
        answer = store.add_message(chat, "assistant", f"answer {number}.")
        store.update_message(answer, reason="end")
    return store, chat


def mounted(shown: Window) -> list[str]:
    answers = shown.app.chat.query_one(Transcript).query(Answer)
    assert len(answers) <= MOST
    return [answer.entry.content for answer in answers]


def lines(shown: Window) -> list[str]:
    """The conversation as it is drawn, without its scrollbar."""
    return [line.partition("│")[0][:-2] for line in shown.text.splitlines()[2:24]]


def numbers(shown: Window) -> list[int]:
    """The turns on screen, in order; a word that ends in a full stop is a turn's number."""
    words = (word for line in lines(shown) for word in line.split())
    return [int(word[:-1]) for word in words if word.endswith(".")]


def settled(shown: Window, before: list[str]) -> bool:
    """Something else is drawn, and no more is on its way."""
    moving = shown.app.chat.query_one(Transcript)._moving
    return not moving and bool(numbers(shown)) and lines(shown) != before


@pytest.mark.slow
async def test_reading_up_to_the_first_turn_and_back(tmp_path: Path) -> None:
    store, chat = long_chat(TURNS)
    trace = Script(pace=0.001).answer("At last.").write(tmp_path / "t")
    async with window(trace, store=store) as shown:
        await shown.ready()
        shown.app.chat.open(chat, "Long")
        await shown.shows(f"answer {TURNS - 1}.")
        transcript = shown.app.chat.query_one(Transcript)
        assert len(mounted(shown)) == transcript.kept
        top = numbers(shown)[0]
        while top > 0:
            before = lines(shown)
            transcript.scroll_relative(y=-5, animate=False)
            await shown.until(lambda old=before: settled(shown, old))
            now = numbers(shown)
            assert now == sorted(now)
            assert top - 1 <= now[0] <= top  # nothing is passed over, nothing jumps
            assert mounted(shown)
            top = now[0]
        transcript.scroll_relative(y=-10, animate=False)
        await shown.shows("question 0.")
        assert transcript._part.hidden(1)
        await shown.ask("One more")
        await shown.answered()
        await shown.shows("At last.")
        assert mounted(shown)[-2:] == [f"answer {TURNS - 1}.", "At last."]
        assert len(mounted(shown)) == transcript.kept
        assert "later messages" not in shown.text


async def test_home_and_end_are_those_of_the_conversation(tmp_path: Path) -> None:
    store, chat = long_chat(TURNS)
    trace = Script(pace=0.001).answer("At last.").write(tmp_path / "t")
    async with window(trace, store=store) as shown:
        await shown.ready()
        shown.app.chat.open(chat, "Long")
        await shown.shows(f"answer {TURNS - 1}.")
        transcript = shown.app.chat.query_one(Transcript)
        transcript.focus()
        await shown.press("home")
        await shown.shows("question 0.")
        assert mounted(shown)[0] == "answer 0."
        await shown.press("end")
        await shown.shows(f"answer {TURNS - 1}.")
        await shown.press("pageup")
        await shown.until(lambda: f"answer {TURNS - 1}." not in shown.text)
        await shown.press("end")
        await shown.shows(f"answer {TURNS - 1}.")
        await shown.until(lambda: len(mounted(shown)) == transcript.kept)
        few = transcript.kept
        await shown.pilot.resize_terminal(100, 60)
        await shown.until(lambda: few < transcript.kept <= len(mounted(shown)))
        await shown.until(lambda: "earlier messages" not in shown.text)
        assert f"answer {TURNS - 1}." in shown.text
