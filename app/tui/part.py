"""Which part of a conversation is mounted, counted in answers, each with its question.

Pure, so that a chat of a thousand turns is walked in a test without drawing one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.tui.conversation import Entry


@dataclass(frozen=True)
class Part:
    """Entries `first` to `end` (not included) of a conversation that had `count` of them."""

    first: int = 0
    end: int = 0
    count: int = 0

    def hidden(self, side: int) -> int:
        """Entries that are beyond it: above it (-1) or below it (1)."""
        return self.first if side < 0 else self.count - self.end


def at_edge(entries: Sequence[Entry], side: int, answers: int) -> Part:
    """The first (-1) or the last (1) `answers` answers."""
    count = len(entries)
    if side < 0:
        return Part(0, _below(entries, 0, answers), count)
    return Part(_above(entries, count, answers), count, count)


def around(entries: Sequence[Entry], place: int, answers: int) -> Part:
    """The turn that entry `place` belongs to, and what follows it, `answers` answers in all."""
    first = _above(entries, place + 1, 1)
    return Part(first, max(place + 1, _below(entries, first, answers)), len(entries))


def grown(part: Part, entries: Sequence[Entry], side: int, more: int, most: int) -> Part:
    """`part` with `more` answers at one side and, beyond `most`, fewer at the other."""
    first, end = part.first, part.end
    if side < 0:
        first = _above(entries, first, more)
        end = min(end, _below(entries, first, most))
    else:
        end = _below(entries, end, more)
        first = max(first, _above(entries, end, most))
    return Part(first, end, len(entries))


def _above(entries: Sequence[Entry], end: int, answers: int) -> int:
    """Where to begin so that `answers` answers before `end` are shown with their questions."""
    index = end
    while index > 0:
        index -= 1
        if entries[index].role == "assistant":
            answers -= 1
            if answers == 0:
                break
    while index > 0 and entries[index].role == "assistant":
        index -= 1
    return index


def _below(entries: Sequence[Entry], first: int, answers: int) -> int:
    """Where to end so that at most `answers` answers from `first` on are shown."""
    index = first
    while index < len(entries):
        if entries[index].role == "assistant":
            if answers == 0:
                break
            answers -= 1
        index += 1
    while 0 < index < len(entries) and entries[index - 1].role == "user":
        index -= 1
    return index
