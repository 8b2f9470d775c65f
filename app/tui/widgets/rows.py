"""Rows of spans that take as many lines as there are rows."""

from textual.geometry import Size

from app.tui.panel import Row
from app.tui.widgets.live_panel import RowsPanel


class GrowingRows(RowsPanel):
    """As high as its rows, and at least one line."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line a row."""
        return max(1, len(self._rows))

    def show(self, rows: list[Row]) -> None:
        """Take the rows; another number of them is another height."""
        grown = len(rows) != len(self._rows)
        super().show(rows)
        if grown:
            self.refresh(layout=True)
