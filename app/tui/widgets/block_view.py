"""The open block while it is denoised, drawn line by line (a third of the cost of widgets).

The first line is a rule with the block's place on the left and the key to the looks on the right;
below it a grid of 8 x 4 cells that words do not move in, or two lines of running text where the
window is narrow or somebody prefers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from app.tui import slots
from app.tui.live import Live
from app.tui.slots import Slot, Span

Layout = Literal["auto", "grid", "text"]

GRID_WIDTH = 80
GRID_ROWS, TEXT_ROWS = 4, 2
MARGIN = 1
LEGEND: tuple[Span, ...] = (
    ("░░░", "undecided"),
    (" undecided  ", "key"),
    ("new", "new"),
    ("  set  ", "key"),
    ("edited*", "edited"),
    ("  \u203aprompt", "prompt"),
)
SHORT_LEGEND: tuple[Span, ...] = (
    ("░░░", "undecided"),
    (" ", "key"),
    ("new", "new"),
    ("  ", "key"),
    ("edited*", "edited"),
)


@dataclass(frozen=True)
class BlockPicture:
    """A block at one moment, and the words about it."""

    slots: Sequence[Slot]
    title: str = "Block"

    @classmethod
    def of(cls, live: Live | None, *, over: bool, slow: bool) -> Self:
        """The newest picture of an answer: `Block 4 · step 2 · 16 of 32 set`; the steps there were
        once the block is final. An answer that is over is frozen."""
        if live is None or live.picture is None:
            return cls(())
        block, step = live.picture
        of = f" of {live.step}" if live.final and live.block == block else ""
        decided = f"{live.decided} of {len(live.slots)} set"
        note = "final" if over else "slow motion: speeds not measured" if slow else ""
        parts = (f"Block {block + 1}", f"step {step}{of}", decided, note)
        parsed = slots.parse(live.slots)
        shown = slots.frozen(parsed) if over else parsed
        return cls(shown, " · ".join(part for part in parts if part))


class BlockView(Widget):
    """Shows a block; `show(None)` empties it."""

    COMPONENT_CLASSES = {
        "block--rule", "block--title", "block--key", "block--undecided", "block--set",
        "block--frozen", "block--prompt", "block--sure", "block--likely", "block--unsure",
    }  # fmt: skip

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._picture = BlockPicture(())
        self._layout: Layout = "auto"
        self._colours = True
        self._rows: list[list[Span]] = []
        self._laid_out = 0

    @property
    def is_grid(self) -> bool:
        """Whether it is drawn as a grid now."""
        return self._layout == "grid" or (self._layout == "auto" and self.size.width >= GRID_WIDTH)

    def prefer(self, layout: Layout, *, colours: bool) -> None:
        """Grid, running text or what the width asks for; with or without confidence colours."""
        self._layout, self._colours = layout, colours
        self._fit()

    def show(self, picture: BlockPicture) -> None:
        """Take the newest state; painting is Textual's business."""
        self._picture, self._laid_out = picture, 0
        self.refresh()

    def on_resize(self) -> None:
        """The width decides, where nobody did."""
        self._fit()

    def _fit(self) -> None:
        self.set_class(not self.is_grid, "-text")
        self._laid_out = 0
        self.refresh()

    def _lay_out(self, width: int) -> None:
        """Done when a line is wanted, so that no size is ever missed."""
        self._laid_out = width
        inner = max(1, width - 2 * MARGIN)
        if self.is_grid:
            self._rows = slots.grid(self._picture.slots, inner)[-GRID_ROWS:]
        else:
            self._rows = slots.running(self._picture.slots, inner, TEXT_ROWS)

    def render_line(self, y: int) -> Strip:
        """Line 0 is the rule, the others are rows of the block."""
        width = self.size.width
        if y == 0:
            return self._rule(width)
        if width != self._laid_out:
            self._lay_out(width)
        row = self._rows[y - 1] if y <= len(self._rows) else []
        segments = [Segment(" " * MARGIN), *(self._segment(span) for span in row)]
        strip = Strip(segments).adjust_cell_length(width - MARGIN)
        return strip.adjust_cell_length(width).apply_style(self.rich_style)

    def _rule(self, width: int) -> Strip:
        rule = self.get_component_rich_style("block--rule")
        title = f" {self._picture.title} "
        room = width - 2 - cell_len(title) - 4
        legend = next((l for l in (LEGEND, SHORT_LEGEND) if _cells(l) <= room), ())
        used = 2 + cell_len(title) + (_cells(legend) + 4 if legend else 0)
        segments = [
            Segment("──", rule),
            Segment(title, self.get_component_rich_style("block--title")),
            Segment("─" * max(0, width - used), rule),
        ]
        if legend:
            key = [self._segment(span) for span in legend]
            segments += [Segment(" "), *key, Segment(" "), Segment("──", rule)]
        return Strip(segments).adjust_cell_length(width).apply_style(self.rich_style)

    def _segment(self, span: Span) -> Segment:
        text, look = span
        return Segment(text, self._style(look))

    def _style(self, look: str) -> Style | None:
        """States in attributes, confidence in colour on top."""
        if not look:
            return None
        state, _, certainty = look.partition("-")
        if state in ("new", "edited"):
            attributes = Style(bold=state == "new", underline=state == "edited")
            colour = (certainty or "sure") if self._colours else "set"
            return self.get_component_rich_style(f"block--{colour}") + attributes
        return self.get_component_rich_style(f"block--{state}")


def _cells(spans: Sequence[Span]) -> int:
    return sum(cell_len(text) for text, _ in spans)
