"""A card in the conversation: what happened, what to do, and the buttons that do it."""

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Static

from app.text import printable
from app.tui.state import Problem

LABELS = {
    "restart": "Restart",
    "again": "Again",
    "fit": "Leave out oldest",
    "move": "New chat",
    "load": "Load it",
    "models": "Models",
    "details": "Details",
    "dismiss": "Dismiss",
}


class ProblemCard(Widget):
    """A problem, with its buttons in a row; Details only when there are any."""

    class Chosen(Message):
        """A button was pressed."""

        def __init__(self, card: "ProblemCard", action: str) -> None:
            super().__init__()
            self.card = card
            self.action = action

    def __init__(self, problem: Problem) -> None:
        super().__init__(classes="card -problem")
        self.problem = problem

    def compose(self) -> ComposeResult:
        problem = self.problem
        yield Static(Text(printable(problem.title)), classes="title")
        yield Static(Text(printable(problem.message)))
        if problem.hint:
            yield Static(Text(printable(problem.hint)), classes="hint")
        details = ("details",) if problem.detail else ()
        with Horizontal(classes="buttons"):
            for action in (*problem.actions, *details, "dismiss"):
                yield Button(Content(f"[ {LABELS[action]} ]"), name=action, compact=True)

    def take_focus(self) -> None:
        """Enter presses the first button from here on."""
        self.query(Button).first().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Tell the screen, which knows the session."""
        event.stop()
        self.post_message(self.Chosen(self, event.button.name or ""))
