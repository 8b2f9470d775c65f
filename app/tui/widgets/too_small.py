"""What stands in a window that is too small for anything else."""

from textual.widget import Widget
from textual.widgets import Static


class TooSmall(Static):
    """Shown by the style sheet in place of a screen's other parts.

    A part that is hidden loses the focus; it gets it back when the window is large enough again.
    """

    def __init__(self) -> None:
        super().__init__("orl-chat needs a window of 60 x 20 at least.", id="too-small")
        self._last: Widget | None = None

    def on_mount(self) -> None:
        """Follow the focus."""
        self.watch(self.screen, "focused", self._remember)

    def _remember(self, focused: Widget | None) -> None:
        if focused is not None:
            self._last = focused

    def on_hide(self) -> None:
        """There is room again."""
        self.call_after_refresh(self._give_back)

    def _give_back(self) -> None:
        if self.screen.focused is None and self._last is not None and self._last.focusable:
            self._last.focus()
