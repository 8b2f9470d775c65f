"""The start card: what this is, what can run here, what to ask, and the chats of before."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.store_rows import ChatSummary
from app.text import printable
from app.tui import welcome
from app.tui.state import EngineState
from app.tui.widgets.options import Options


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

    def __init__(self, engine: EngineState, recent: Sequence[ChatSummary]) -> None:
        super().__init__(classes="card -welcome")
        self._engine = engine
        self._recent = recent
        self._machine = welcome.this_machine()
        self._asked: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static(self._words(), classes="words")
        yield Options(*self._options(), markup=False, compact=True)

    def show(self, engine: EngineState) -> None:
        """The engine found out what answers."""
        self._engine = engine
        if self.is_mounted:
            self._refresh_words()

    def offer(self, recent: Sequence[ChatSummary]) -> None:
        """The chats of before as they are by now."""
        if recent != self._recent:
            self._recent = recent
            self._refresh_options()

    def on_mount(self) -> None:
        """What was found out while the card was being mounted."""
        self._refresh_words()

    def _refresh_words(self) -> None:
        """Of a card that goes at this moment the parts may be gone already."""
        for words in self.query(".words").results(Static):
            words.update(self._words())
        if self._asked != welcome.questions(self._engine.ready):
            self._refresh_options()

    def _refresh_options(self) -> None:
        for options in self.query(Options):
            options.clear_options()
            options.add_options(self._options())

    def _words(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        table.add_row("orl-chat", Text(welcome.TAGLINE))
        table.add_row()
        table.add_row(
            "This machine", Text(welcome.machine_words(self._machine, self._engine.ready))
        )
        table.add_row()
        table.add_row("The model", Text(printable(welcome.model_words(self._engine))))
        return table

    def _options(self) -> list[Option | None]:
        self._asked = welcome.questions(self._engine.ready)
        asks = [(f"ask-{i}", text) for i, text in enumerate(self._asked)]
        opens = [(f"open-{i}", chat.title) for i, chat in enumerate(self._recent)]
        options: list[Option | None] = [Option("Ask  (Tab, then Enter)", disabled=True)]
        options += [_option(id, text) for id, text in asks]
        if opens:
            options += [None, Option("Go on with", disabled=True)]
            options += [_option(id, text) for id, text in opens]
        return options

    def take_focus(self) -> None:
        """The last question, next to the prompt."""
        options = self.query_one(OptionList)
        options.focus()
        options.highlighted = len(self._asked)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tell the screen."""
        event.stop()
        kind, _, index = (event.option_id or "").partition("-")
        if kind == "ask":
            self.post_message(self.Asked(self._asked[int(index)]))
        elif kind == "open":
            self.post_message(self.Opened(self._recent[int(index)]))


def _option(id: str, text: str) -> Option:
    return Option(Text(f"  \u203a {printable(text)}"), id=id)
