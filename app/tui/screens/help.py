"""F1: the keys in force where the user was, and what every number means."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.tui.figures import DEFINITIONS
from app.tui.widgets.bars import KeyBar

KeyLine = tuple[str, str]
WIDTH = 20
MOST_KEYS = 2


class HelpScreen(ModalScreen[None]):
    """Keys first, numbers below."""

    BINDINGS = [Binding("escape,q,f1", "dismiss", "back", id="help.back")]

    def __init__(self, keys: Iterable[KeyLine], editing: Iterable[KeyLine]) -> None:
        super().__init__()
        self._keys = list(keys)
        self._editing = list(editing)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="window") as window:
            window.border_title = "Help"
            yield Static("Keys", classes="title")
            yield Static(_table(self._keys))
            yield Static("Numbers", classes="title")
            yield Static(_table(DEFINITIONS))
            if self._editing:
                yield Static("Editing text", classes="title")
                yield Static(_table(self._editing))
        yield KeyBar()

    def on_mount(self) -> None:
        """Arrow keys scroll at once."""
        self.query_one(VerticalScroll).focus()


def _table(lines: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=WIDTH, style="bold")
    table.add_column()
    for left, right in lines:
        table.add_row(Text(left), Text(right))
    return table


def key_lines(bindings: Iterable[Binding], *, with_id: bool) -> list[KeyLine]:
    """One line an action: its keys and what it does; those with an id can be rebound."""
    keys: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for binding in bindings:
        if bool(binding.id) is not with_id or not binding.description:
            continue
        keys.setdefault(binding.action, []).append(key_words(binding.key))
        words[binding.action] = binding.tooltip or binding.description
    return [(", ".join(list(dict.fromkeys(keys[a]))[:MOST_KEYS]), words[a]) for a in keys]


def key_words(key: str) -> str:
    """`ctrl+shift+left` as `Ctrl+Shift+Left`."""
    names = {
        "question_mark": "?", "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn",
        "plus": "+", "minus": "-", "equals_sign": "=",
    }  # fmt: skip
    return "+".join(
        names.get(part, part.upper() if len(part) == 1 else part.capitalize())
        for part in key.split("+")
    )
