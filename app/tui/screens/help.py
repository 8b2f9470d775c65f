"""F1: the keys in force where the user was, and what every number means."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.tui.figures import DEFINITIONS
from app.tui.keys import Rebindable
from app.tui.widgets.bars import KeyBar

KeyLine = tuple[str, ...]
"""Keys, what they do, and the id by which they can be given others."""
WIDTH = 20
MOST_KEYS = 2
OTHER_KEYS = (
    "The names on the right are for changing keys: under [keys] in {path} write, say, "
    'chat.again = "f10", and start orl-chat again.'
)


class HelpScreen(ModalScreen[None]):
    """The keys in force, what the numbers mean, the keys of other parts, those of text fields."""

    BINDINGS = [Binding("escape,q,f1", "dismiss", "back", id="help.back")]

    def __init__(
        self,
        keys: Iterable[KeyLine],
        elsewhere: Iterable[KeyLine],
        editing: Iterable[KeyLine],
        settings: Path,
    ) -> None:
        super().__init__()
        self._keys = list(keys)
        self._elsewhere = list(elsewhere)
        self._editing = list(editing)
        self._settings = settings

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="window") as window:
            window.border_title = "Help"
            yield Static("Keys", classes="title")
            yield Static(_table(self._keys))
            yield Static(Text(OTHER_KEYS.format(path=self._settings)), classes="dim")
            yield Static("Numbers", classes="title")
            yield Static(_table(DEFINITIONS))
            yield Static("Keys elsewhere", classes="title")
            yield Static(_table(self._elsewhere))
            if self._editing:
                yield Static("Editing text", classes="title")
                yield Static(_table(self._editing))
        yield KeyBar()

    def on_mount(self) -> None:
        """Arrow keys scroll at once."""
        self.query_one(VerticalScroll).focus()


def _table(lines: Iterable[tuple[str, ...]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=WIDTH, style="bold")
    table.add_column()
    table.add_column(style="dim")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def key_lines(bindings: Iterable[Binding], *, with_id: bool) -> list[KeyLine]:
    """One line an action: its keys, what it does and, where it has one, its id."""
    keys: dict[str, list[str]] = {}
    words: dict[str, KeyLine] = {}
    for binding in bindings:
        if bool(binding.id) is not with_id or not binding.description:
            continue
        keys.setdefault(binding.action, []).append(key_words(binding.key))
        what = binding.tooltip or binding.description
        words[binding.action] = (what, binding.id) if binding.id else (what,)
    return [(_some(keys[action]), *words[action]) for action in keys]


def other_lines(known: Iterable[Rebindable], chosen: Mapping[str, str]) -> list[KeyLine]:
    """The same of bindings that are not in force here; `chosen` are the user's keys."""
    lines: list[KeyLine] = []
    for binding in known:
        keys = chosen[binding.id].split(",") if binding.id in chosen else binding.keys
        lines.append((_some([key_words(key) for key in keys]), binding.words, binding.id))
    return lines


def _some(keys: Iterable[str]) -> str:
    return ", ".join(list(dict.fromkeys(keys))[:MOST_KEYS])


def key_words(key: str) -> str:
    """`ctrl+shift+left` as `Ctrl+Shift+Left`."""
    names = {
        "question_mark": "?", "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn",
        "plus": "+", "minus": "-", "equals_sign": "=",
        "left_square_bracket": "[", "right_square_bracket": "]",
    }  # fmt: skip
    return "+".join(
        names.get(part, part.upper() if len(part) == 1 else part.capitalize())
        for part in key.split("+")
    )
