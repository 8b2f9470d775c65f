"""The open block while it is denoised, drawn line by line (a third of the cost of widgets).

The first line is a rule with the block's place on the left and the key to the looks on the right;
below it a grid of 8 x 4 cells, or two lines of running text where the window is narrow.
"""

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from app.tui import slots
from app.tui.live import Live
from app.tui.slots import Span

GRID_WIDTH = 90
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


class BlockView(Widget):
    """Shows a `Live`'s block; `show(None)` empties it."""

    COMPONENT_CLASSES = {
        "block--rule", "block--title", "block--key", "block--undecided", "block--set",
        "block--prompt", "block--sure", "block--likely", "block--unsure",
    }  # fmt: skip

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None
        self._note = ""
        self._rows: list[list[Span]] = []
        self._laid_out = 0

    def show(self, live: Live | None, note: str = "") -> None:
        """Take the newest state; painting is Textual's business."""
        self._live, self._note, self._laid_out = live, note, 0
        self.refresh()

    def _lay_out(self, width: int) -> None:
        """Grid or running text; done when a line is wanted, so that no size is ever missed."""
        self._laid_out = width
        inner = width - 2 * MARGIN
        parsed = slots.parse(self._live.slots if self._live is not None else [])
        if width >= GRID_WIDTH:
            self._rows = slots.grid(parsed, inner)[-GRID_ROWS:]
        else:
            self._rows = slots.running(parsed, max(1, inner), TEXT_ROWS)

    @property
    def title(self) -> str:
        """`Block 4 · step 2 · 16 of 32 set`; the steps there were, once the block is final."""
        live = self._live
        if live is None or live.picture is None:
            return "Block"
        block, step = live.picture
        of = f" of {live.step}" if live.final and live.block == block else ""
        decided = f"{live.decided} of {len(live.slots)} set"
        parts = [f"Block {block + 1}", f"step {step}{of}", decided, self._note]
        return " · ".join(part for part in parts if part)

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
        title = f" {self.title} "
        legend = list(LEGEND)
        used = 2 + cell_len(title) + sum(cell_len(text) for text, _ in legend) + 4
        if used > width:
            legend = []
            used = 2 + cell_len(title)
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
            return self.get_component_rich_style(f"block--{certainty or 'sure'}") + attributes
        return self.get_component_rich_style(f"block--{state}")
