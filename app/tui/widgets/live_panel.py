"""The answer's figures on screen: a panel beside the conversation, or one line above the prompt."""

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from app.tui import panel
from app.tui.panel import Row
from app.tui.state import EngineState, Turn

LOOKS = (
    "label", "value", "figure", "spark", "meter", "rest", "warning", "note",
    "bar", "edited", "none",
)  # fmt: skip


class Figures(Widget):
    """Draws rows of spans with the line API; repainting never causes a layout."""

    COMPONENT_CLASSES = {f"figures--{look}" for look in LOOKS}
    ALLOW_SELECT = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: list[Row] = []

    def render_line(self, y: int) -> Strip:
        """One row, cut or padded to the width."""
        row = self._rows[y] if y < len(self._rows) else []
        segments = [
            Segment(text, self.get_component_rich_style(f"figures--{look}")) for text, look in row
        ]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)


class RowsPanel(Figures):
    """Rows that somebody else wrote."""

    def show(self, rows: list[Row]) -> None:
        """Take the rows."""
        self._rows = rows
        self.refresh()


class LivePanel(Figures):
    """All figures, one a line."""

    def show(
        self,
        turn: Turn | None,
        before: Turn | None,
        engine: EngineState,
        context: int | None = None,
    ) -> None:
        """Take the newest figures."""
        width, height = self.content_size
        rows = panel.rows(turn, before, engine, width, context)
        self._rows = [*rows, *panel.strip(turn, width, height - len(rows))]
        self.border_title = "Live" if turn is None or turn.live.stats is None else "Last answer"
        self.refresh()


class LiveLine(Figures):
    """The most wanted figures in one line."""

    def show(self, turn: Turn | None, engine: EngineState, context: int | None = None) -> None:
        """Take the newest figures."""
        self._rows = [panel.one_line(turn, engine, self.content_size.width, context)]
        self.refresh()
