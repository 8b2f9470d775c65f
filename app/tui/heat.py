"""Where an answer came easily and where it struggled: a row a block, a cell a step, as high as the
tokens that the step set.

Pure: rows of spans, like `slots`. A step that set nothing is a dot, one that edited is underlined
(and a star if that is all it did), so that no colour is needed.
"""

from collections.abc import Sequence

from app.protocol import Block
from app.tui.figures import duration
from app.tui.slots import Span
from app.tui.spark import BARS

NONE, EDITS = "·", "*"
LABEL, TOKENS, TIME = 4, 5, 8
WIDE = 34
"""From here on there is room for a block's time."""


def row(block: Block, width: int, most: int, at: tuple[int, int] | None = None) -> list[Span]:
    """A block's number, its steps, its tokens. `most` is what a full cell stands for, `at` the
    block and the step (from 1) to mark. Steps that do not fit are cut, with an ellipsis."""
    here = at is not None and at[0] == block.index
    timed = width >= WIDE
    room = width - LABEL - TOKENS - (TIME if timed else 0)
    edits = [*block.edits_per_step, *[0] * len(block.unmasked_per_step)]
    cells: list[Span] = []
    for step, unmasked in enumerate(block.unmasked_per_step, start=1):
        look = "edited" if edits[step - 1] else "bar" if unmasked else "none"
        marked = here and at is not None and at[1] == step
        cells.append((cell(unmasked, edits[step - 1], most), f"{look}-at" if marked else look))
    if len(cells) > room:
        cells = [*cells[: room - 1], ("…", "none")]
    number = (f"{block.index + 1:>{LABEL - 1}} ", "here" if here else "label")
    time = duration(block.seconds if block.measured else None) if timed else ""
    figures = f"{block.tokens:>{TOKENS}}" + (f"{time:>{TIME}}" if timed else "")
    return [number, *cells, (" " * (room - len(cells)) + figures, "label")]


def top(blocks: Sequence[Block]) -> int:
    """The most tokens that a step set."""
    return max((n for block in blocks for n in block.unmasked_per_step), default=0)


def cell(unmasked: int, edited: int, most: int) -> str:
    """One step: a bar for what it set, `most` being a full one; `*` if it only edited."""
    if not unmasked:
        return EDITS if edited else NONE
    return BARS[max(0, round(unmasked / max(1, most) * len(BARS)) - 1)]
