"""Rows of spans that take as many lines as there are rows, written for the width they have."""

from collections.abc import Callable

from textual import events
from textual.geometry import Size

from app.tui.panel import Row
from app.tui.widgets.live_panel import RowsPanel


class GrowingRows(RowsPanel):
    """As high as its rows, and at least one line."""

    _write: Callable[[int], list[Row]] | None = None

    def fill(self, write: Callable[[int], list[Row]]) -> None:
        """Take what writes the rows for a width; it is asked again when the width changes."""
        self._write = write
        before = len(self._rows)
        self._fill()
        self.refresh(layout=len(self._rows) != before or not self.content_size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Another width, perhaps other rows."""
        self._fill()
        self.refresh()

    def _fill(self) -> None:
        width = self.content_size.width
        if self._write is not None and width > 0:
            self._rows = self._write(width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line a row of that width."""
        rows = self._write(width) if self._write is not None and width > 0 else self._rows
        return max(1, len(rows))
