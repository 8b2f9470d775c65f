"""The lines of the list of chats fit, whatever they say, and show what was found."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from app.store_rows import ChatSummary
from app.store_search import Hit
from app.text import printable
from app.tui import chat_rows
from app.words import Search

DIM, MARK = Style(dim=True), Style(underline=True)


def chat(title: str, preview: str = "", hit: Hit | None = None) -> ChatSummary:
    return ChatSummary(1, title, time.time(), 2, preview, hit)


def hit(text: str, search: str, length: int = 120) -> Hit:
    snippet, marks = Search(search).snippet(printable(text), length)
    return Hit(7, snippet, tuple(marks))


def marked(row: Text) -> list[str]:
    """What is marked and seen."""
    return [row.plain[s.start : s.end] for s in row.spans if s.style == MARK]


@settings(max_examples=40)
@given(st.text(max_size=80), st.text(max_size=80), st.integers(30, 160))
def test_a_line_is_as_wide_as_its_row_and_harmless(title: str, text: str, width: int) -> None:
    search = Search(text[:9])
    found = chat(title, " ".join(text.split()), hit(text, text[:9]) if search.parts else None)
    for row in (
        chat_rows.overview(found, width, DIM),
        chat_rows.heading(found, search, width, DIM, MARK),
        chat_rows.found(found, width, DIM, MARK),
    ):
        assert cell_len(row.plain) == width
        assert not set(row.plain) & set("\n\r\x1b\x07\x9b\u202e")


def test_what_was_found_is_marked_in_title_and_message() -> None:
    found = chat("About Äpfel", "newest", hit("I like apfel and äpfel.", "apfel"))
    assert marked(chat_rows.heading(found, Search("apfel"), 60, DIM, MARK)) == ["Äpfel"]
    assert marked(chat_rows.found(found, 60, DIM, MARK)) == ["apfel", "äpfel"]
    only_title = chat("About Äpfel", "newest")
    assert chat_rows.found(only_title, 20, DIM, MARK).plain == "newest".ljust(20)


def test_the_first_mark_is_seen_in_a_narrow_row() -> None:
    before = "東京に行きたい" * 6
    for width in (20, 40, 80):
        row = chat_rows.found(
            chat("t", hit=hit(f"{before}needle {before}", "needle")), width, DIM, MARK
        )
        assert marked(row) == ["needle"]
        assert row.plain.startswith("…")
