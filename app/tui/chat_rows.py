"""The list of chats as lines: what stands in one, and what a search found marked in it.

Pure: a line is a Text of a given width, whatever a title or a message holds.
"""

import time
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from app.store_rows import ChatSummary
from app.text import printable
from app.words import Search

CHOSEN, NOT_CHOSEN = "› ", "  "  # noqa: RUF001 - the glyph of ascii_only
SHORTEST_TITLE = 16
LONGEST_TITLE = 40

Marks = Iterable[tuple[int, int]]


def overview(chat: ChatSummary, width: int, dim: Style) -> Text:
    """Title, the newest message's start, and when."""
    when = _when(chat.updated)
    title_width = min(LONGEST_TITLE, max(SHORTEST_TITLE, width // 2))
    room = width - title_width - cell_len(when) - 4
    row = Text(_cut(title(chat), title_width), no_wrap=True)
    row.append(f"  {_cut(printable(chat.preview), max(0, room))}  {when}", dim)
    return row


def heading(chat: ChatSummary, search: Search, width: int, dim: Style, mark: Style) -> Text:
    """The title with what was looked for in it, and when."""
    when = _when(chat.updated)
    words = title(chat)
    row = _marked(words, search.marks(words), width - cell_len(when) - 2, mark)
    row.append(f"  {when}", dim)
    return row


def found(chat: ChatSummary, width: int, dim: Style, mark: Style) -> Text:
    """What a search found in the messages; the newest one's start where only the title holds it."""
    if chat.hit is None:
        return Text(_cut(printable(chat.preview), width), dim, no_wrap=True)
    row = _marked(*_from_mark(chat.hit.snippet, chat.hit.marks, width), width, mark)
    row.style = dim
    return row


def title(chat: ChatSummary) -> str:
    """A chat's title on one line."""
    return " ".join(printable(chat.title).split()) or "Untitled"


def _marked(text: str, marks: Marks, width: int, mark: Style) -> Text:
    row = Text(_cut(text, width), no_wrap=True)
    for start, end in marks:
        row.stylize(mark, start, end)
    return row


def _from_mark(
    snippet: str, marks: Sequence[tuple[int, int]], width: int
) -> tuple[str, list[tuple[int, int]]]:
    """A snippet without as much of its beginning as its first mark needs to be seen."""
    start, end = marks[0] if marks else (0, 0)
    skipped = 0
    while skipped < start and cell_len(snippet[skipped:end]) + 2 > width:
        skipped += 1
    if not skipped:
        return snippet, list(marks)
    return "…" + snippet[skipped:], [(a + 1 - skipped, b + 1 - skipped) for a, b in marks]


def _cut(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    if cell_len(text) > width > 0:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def _when(stamp: float) -> str:
    """`14:21` today, `3 Nov` this year, else the year."""
    then, now = time.localtime(stamp), time.localtime()
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then).rjust(6)
    if then.tm_year == now.tm_year:
        return f"{then.tm_mday:2d} {time.strftime('%b', then)}"
    return str(then.tm_year).rjust(6)
