"""Which part of a conversation is mounted, counted in answers, each with its question."""

from collections.abc import Sequence

from app.tui.conversation import Entry


def above(entries: Sequence[Entry], end: int, answers: int) -> int:
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
