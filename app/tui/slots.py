"""The open block as rows of text: 32 positions in a grid, or running text where width is short.

Pure: a row is a list of spans, a text and the name of its look, which the widget turns into
colours. The states can be told apart without colour: undecided is shaded, new is bold, edited is
underlined and starred, prompt text leans on a mark, set is plain; a frozen block (final, its keys
and values kept) has no marks at all, and its title says so. Token text is the model's and is drawn
cell by cell, never parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len, set_cell_size

from app.text import printable

COLUMNS, CELL = 8, 12
WIDEST_CELL = 18
UNDECIDED, HALF, NEWLINE, SPACE, PROMPT = "░░░", "·", "↵", "␣", "\u203a"
JOINERS = "\u200c\u200d"
SURE, LIKELY = 0.9, 0.7
END, ENDS = "<end>", ("<|role_end|>", "<|endoftext|>")

Span = tuple[str, str]
"""A text and the name of its look: undecided, set, prompt, frozen, or new-* and edited-* by
confidence."""

FROZEN = "f"


@dataclass(frozen=True)
class Slot:
    """One position: the token's text, the confidence it was given, its state (events.py)."""

    text: str
    confidence: float
    state: str

    @property
    def look(self) -> str:
        """The name of its look."""
        if self.state == "u":
            return "undecided"
        if self.state in ("n", "e"):
            return f"{'new' if self.state == 'n' else 'edited'}-{certainty(self.confidence)}"
        return {"p": "prompt", FROZEN: "frozen"}.get(self.state, "set")


def certainty(confidence: float) -> str:
    """The colour's name: sure (0.9 and above), likely (0.7 and above), unsure."""
    if confidence >= SURE:
        return "sure"
    return "likely" if confidence >= LIKELY else "unsure"


def parse(raw: Sequence[Sequence[Any]]) -> list[Slot]:
    """Slots of a `Step`; one that is not [id, text, confidence, state] shows as undecided."""
    return [_slot(item) for item in raw]


def frozen(slots: Sequence[Slot]) -> list[Slot]:
    """The slots of a block that is final: nothing in it is new, or will be edited."""
    return [replace(slot, state=FROZEN) if slot.state in "nse" else slot for slot in slots]


def _slot(item: Sequence[Any]) -> Slot:
    match list(item):
        case [_, str(text), int() | float() as confidence, "u" | "n" | "s" | "e" | "p" as state]:
            return Slot(text, float(confidence), state)
    return Slot("", 0.0, "u")


def visible(text: str) -> str:
    """A token's text with everything that has no shape of its own made visible, on one line.

    Half a character (the decoder's U+FFFD, a mark without its letter) is or has a middle dot, never
    a replacement box. End tokens fill an answer's last block: their names, cut off by every cell,
    would be all there is to see.
    """
    if text in ENDS:
        return END
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufffd", HALF)
    lines = [printable(line).replace("\t", "⇥") for line in text.split("\n")]
    text = NEWLINE.join(lines).strip(JOINERS)
    if not text:
        return HALF
    # What would sit on the character before it, which is a neighbour's or a gap.
    text = text if cell_len(text[0]) else HALF + text
    return text if text.strip(" ") else SPACE * len(text)


def label(slot: Slot) -> str:
    """What a grid cell says, without padding."""
    if slot.state == "u":
        return UNDECIDED
    text = visible(slot.text).strip(" ")
    if slot.state == "e":
        return f"{text}*"
    return PROMPT + text if slot.state == "p" else text


def grid(slots: Sequence[Slot], width: int) -> list[list[Span]]:
    """Rows of 8 cells of one width, so that words do not jump while the block settles."""
    cell = max(4, min(width // COLUMNS, WIDEST_CELL))
    return [
        [span for slot in slots[start : start + COLUMNS] for span in _cell(slot, cell)]
        for start in range(0, len(slots), COLUMNS)
    ]


def _cell(slot: Slot, width: int) -> list[Span]:
    """The label cut to fit with one column to spare; the star of an edit is never cut."""
    text = label(slot)
    room = width - 1
    if cell_len(text) > room:
        end = "…*" if slot.state == "e" else "…"
        text = set_cell_size(text, room - len(end)).rstrip(" ") + end
    return [(text, slot.look), (" " * (width - cell_len(text)), "")]


def running(slots: Sequence[Slot], width: int, rows: int) -> list[list[Span]]:
    """The block as text, one shade a position that is undecided; the last `rows` lines of it."""
    lines: list[list[Span]] = [[]]
    used = 0
    for slot in slots:
        for text, look in _pieces(slot):
            text = set_cell_size(text, width) if cell_len(text) > width else text
            if used + cell_len(text) > width:
                lines.append([])
                used = 0
                text = text.lstrip(" ")
            lines[-1].append((text, look))
            used += cell_len(text)
    return lines[-rows:]


def _pieces(slot: Slot) -> list[Span]:
    """A token's leading spaces stay plain, so that an underline marks the word alone."""
    if slot.state == "u":
        return [("░", slot.look)]
    text = visible(slot.text)
    word = text.lstrip(" ")
    gap = [(text[: len(text) - len(word)], "")] if len(word) < len(text) else []
    return [*gap, (word + ("*" if slot.state == "e" else ""), slot.look)]


def plain(rows: Sequence[Sequence[Span]]) -> list[str]:
    """The rows as text."""
    return ["".join(text for text, _ in row).rstrip() for row in rows]
