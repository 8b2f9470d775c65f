"""A question that is answered by yes or no, and by nothing else."""

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from app.text import printable
from app.tui.screens.modal import Modal
from app.tui.widgets.bars import KeyBar


class ConfirmScreen(Modal[bool]):
    """`yes` and `no` say what the buttons do; No has the focus."""

    BINDINGS = [
        Binding("escape", "answer(False)", "no", id="confirm.no"),
        Binding("y", "answer(True)", "yes", id="confirm.yes"),
        Binding("n", "answer(False)", "no", show=False),
        Binding("left,right", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, title: str, text: str, *, yes: str, no: str) -> None:
        super().__init__()
        self._title, self._text, self._yes, self._no = title, printable(text), yes, no

    def compose(self) -> ComposeResult:
        with Vertical(classes="window -small") as window:
            window.border_title = Content(self._title)
            yield Static(Text(self._text), markup=False)
            with Horizontal(classes="buttons"):
                yield Button(Content(f"[ {self._yes} ]"), name="yes", compact=True)
                yield Button(Content(f"[ {self._no} ]"), name="no", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        """A reflex must not allow anything."""
        self.query(Button).last().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button is the answer."""
        event.stop()
        self.action_answer(event.button.name == "yes")

    def action_answer(self, yes: bool) -> None:
        """Back, with the answer."""
        self.dismiss(yes)
