"""A text to read over the chat: details of a problem, the log."""

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.text import printable
from app.tui.widgets.bars import KeyBar


class TextScreen(ModalScreen[None]):
    """Shows `text`, scrolled; Esc goes back."""

    BINDINGS = [
        Binding("escape,q", "dismiss", "back", id="text.back"),
        Binding("y", "copy", "copy", id="text.copy"),
    ]

    def __init__(self, title: str, text: str, *, at_end: bool = False) -> None:
        super().__init__()
        self._title = title
        self._text = printable(text)
        self._at_end = at_end

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="window") as window:
            window.border_title = Content(self._title)
            yield Static(Text(self._text), id="text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Logs are read from their end."""
        window = self.query_one(VerticalScroll)
        window.focus()
        if self._at_end:
            window.scroll_end(animate=False)

    @property
    def text(self) -> str:
        """What is shown."""
        return self._text

    def show_text(self, text: str) -> None:
        """Show another one in its place; the screen may be closing by now."""
        self._text = printable(text)
        for shown in self.query("#text").results(Static):
            shown.update(Text(self._text))

    def action_copy(self) -> None:
        """To the clipboard, where the terminal allows it."""
        self.app.copy_to_clipboard(self._text)
        self.notify("Copied.", timeout=2)
