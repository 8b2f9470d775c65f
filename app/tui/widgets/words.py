"""A line or two of text that is told again and again, and costs something only when it changes.

Telling a Static anything lays out the whole screen, 20 answers with it, which takes longer than
everything else that happens while an answer is written.
"""

from rich.text import Text
from textual.widgets import Static


class Words(Static):
    """A Static for `say`. One that `fills` has the size its place gives it, whatever it says."""

    def __init__(self, *, id: str | None = None, classes: str = "", fills: bool = False) -> None:
        super().__init__("", id=id, classes=classes, markup=False)
        self._fills = fills
        self._said: Text | None = None

    def say(self, text: Text) -> None:
        """Show `text`, unless that is what is shown."""
        if text != self._said:
            self._said = text
            self.update(text, layout=not self._fills)
