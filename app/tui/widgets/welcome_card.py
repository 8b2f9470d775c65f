"""The start card: what this is, what can run here, what to ask, and the chats of before."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.protocol import Ready
from app.store import ChatSummary
from app.text import printable
from app.tui import welcome


class WelcomeCard(Widget):
    """Shown while a conversation is empty. Enter or a click asks a question or opens a chat."""

    class Asked(Message):
        """A question was chosen."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Opened(Message):
        """A chat of before was chosen."""

        def __init__(self, chat: ChatSummary) -> None:
            super().__init__()
            self.chat = chat

    def __init__(self, ready: Ready | None, recent: Sequence[ChatSummary]) -> None:
        super().__init__(classes="card -welcome")
        self._ready = ready
        self._recent = recent
        self._machine = welcome.this_machine()

    def compose(self) -> ComposeResult:
        yield Static(self._words(), classes="words")
        yield OptionList(*self._options(), markup=False, compact=True)

    def show(self, ready: Ready | None) -> None:
        """The engine found out what answers."""
        if ready == self._ready:
            return
        self._ready = ready
        self.query_one(".words", Static).update(self._words())
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(self._options())

    def _words(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        table.add_row("orl-chat", Text(welcome.TAGLINE))
        table.add_row()
        table.add_row("This machine", Text(welcome.machine_words(self._machine, self._ready)))
        table.add_row("The model", Text(printable(welcome.model_words(self._ready))))
        return table

    def _options(self) -> list[Option | None]:
        options: list[Option | None] = [Option(Text("Try", "bold"), disabled=True)]
        options += [
            Option(Text(f"  {question}", no_wrap=True, overflow="ellipsis"), id=f"ask-{i}")
            for i, question in enumerate(welcome.questions(self._ready))
        ]
        if self._recent:
            options += [None, Option(Text("Go on with", "bold"), disabled=True)]
            options += [
                Option(
                    Text(f"  {printable(chat.title)}", no_wrap=True, overflow="ellipsis"),
                    id=f"open-{i}",
                )
                for i, chat in enumerate(self._recent)
            ]
        return options

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tell the screen."""
        event.stop()
        kind, _, index = (event.option_id or "").partition("-")
        if kind == "ask":
            self.post_message(self.Asked(welcome.questions(self._ready)[int(index)]))
        elif kind == "open":
            self.post_message(self.Opened(self._recent[int(index)]))
