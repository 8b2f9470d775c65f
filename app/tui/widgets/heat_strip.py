"""The heat strip on screen: a row a block, a cell a step; a click goes there."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from app.protocol import Block
from app.tui import heat
from app.tui.slots import Span

AT = "-at"


class HeatStrip(Widget):
    """The blocks of an answer, those around the marked one where not all fit."""

    COMPONENT_CLASSES = {
        "heat--label", "heat--here", "heat--bar", "heat--edited", "heat--none",
    }  # fmt: skip
    ALLOW_SELECT = False

    class Chosen(Message):
        """A step was clicked: its block, and the step from 1."""

        def __init__(self, block: int, step: int) -> None:
            super().__init__()
            self.block = block
            self.step = step

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[Block] = []
        self._most = 0
        self._at: tuple[int, int] | None = None

    def show(self, blocks: Sequence[Block]) -> None:
        """Take another answer's blocks."""
        self._blocks, self._at = list(blocks), None
        self._most = heat.top(self._blocks)
        self.refresh()

    def mark(self, block: int, step: int) -> None:
        """Mark a step of a block."""
        self._at = (block, step)
        self.refresh()

    def _first(self) -> int:
        """The first block that is drawn: the marked one stays in the middle of a long answer."""
        height = self.content_size.height
        marked = next(
            (i for i, block in enumerate(self._blocks) if self._at and block.index == self._at[0]),
            0,
        )
        return max(0, min(marked - height // 2, len(self._blocks) - height))

    def render_line(self, y: int) -> Strip:
        """One block."""
        width, index = self.content_size.width, self._first() + y
        if index >= len(self._blocks):
            return Strip.blank(width, self.rich_style)
        row = heat.row(self._blocks[index], width, self._most, self._at)
        strip = Strip([self._segment(span) for span in row])
        return strip.adjust_cell_length(width).apply_style(self.rich_style)

    def _segment(self, span: Span) -> Segment:
        text, look = span
        style = self.get_component_rich_style(f"heat--{look.removesuffix(AT)}")
        marks = Style(
            underline=look.startswith("edited") or None, reverse=look.endswith(AT) or None
        )
        return Segment(text, style + marks)

    def on_click(self, event: events.Click) -> None:
        """Go to the step under the pointer; beside the steps, to the block's first."""
        at = event.get_content_offset(self)
        index = self._first() + (at.y if at is not None else 0)
        if at is not None and index < len(self._blocks):
            step = max(1, at.x - heat.LABEL + 1)
            self.post_message(self.Chosen(self._blocks[index].index, step))
