"""Other keys for the actions: mark one, press Enter, press its new key. Saved at once."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.settings import SettingsError, SettingsFile
from app.text import printable
from app.tui import keys
from app.tui.screens.help import key_words
from app.tui.widgets.bars import KeyBar
from app.tui.widgets.options import Options

ID, KEYS = 22, 16
ABOUT = "Enter, then the new key. Backspace: the key it came with."
WAITING = "Press the new key for {id}; Esc leaves it as it is."


class KeyList(Options):
    """The actions; while one waits for its key, every key is taken before the list sees it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "change", key_display="enter", id="keys.change"),
        Binding("backspace,delete", "screen.reset", "default", id="keys.reset"),
    ]

    def on_key(self, event: events.Key) -> None:
        """Before any binding sees it."""
        screen = self.screen
        if isinstance(screen, KeysScreen) and screen.waiting:
            event.stop()
            event.prevent_default()
            screen.take(event.key)


class KeysScreen(ModalScreen[None]):
    """Every binding that has a name. `hold` lets chosen keys hold in the program."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back", id="keys.back")]

    def __init__(self, file: SettingsFile, hold: Callable[[dict[str, str]], None]) -> None:
        super().__init__()
        self._file, self._hold = file, hold
        self._known = {binding.id: binding for binding in keys.rebindable()}
        self._waiting: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="window") as window:
            window.border_title = "Keys"
            yield KeyList(
                *(Option(self._line(id), id=id) for id in self._known), markup=False, compact=True
            )
            yield Static(ABOUT, id="note", markup=False)
        yield KeyBar()

    def _line(self, id: str) -> Text:
        binding, chosen = self._known[id], self._file.settings.keys.get(id)
        now = chosen.split(",") if chosen is not None else list(binding.keys)
        line = Text(f"{id:<{ID}}", no_wrap=True, overflow="ellipsis")
        line.append(f"{printable(', '.join(key_words(key) for key in now))[:KEYS]:<{KEYS}}", "bold")
        line.append("  set " if chosen is not None else "      ", "dim")
        line.append(binding.words, "dim")
        return line

    @property
    def _marked(self) -> str | None:
        option = self.query_one(KeyList).highlighted_option
        return option.id if option is not None else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Wait for the key."""
        event.stop()
        self._waiting = event.option_id
        self._say(WAITING.format(id=self._waiting))

    @property
    def waiting(self) -> bool:
        """Whether the next key is the one that is wanted."""
        return self._waiting is not None

    def take(self, key: str) -> None:
        """The key that was wanted; Esc leaves things as they are."""
        id, self._waiting = self._waiting, None
        if id is not None and key != "escape":
            self._choose(id, key)
        else:
            self._say(ABOUT)

    def action_reset(self) -> None:
        """The key it came with."""
        if (id := self._marked) is not None:
            self._choose(id, None)

    def action_back(self) -> None:
        """Leave."""
        self.dismiss(None)

    def _choose(self, id: str, key: str | None) -> None:
        """Check `key` beside the others, let it hold and save it; None is the default."""
        chosen = {name: own for name, own in self._file.settings.keys.items() if name != id}
        if key is not None:
            chosen[id] = key
        good, words = keys.check(chosen, self._known.values())
        if key is not None and id not in good:
            self._say(next((w for w in words if w.startswith(f"{id} ")), f"{id} keeps its key."))
            return
        note = ABOUT
        try:
            self._file.set(keys=chosen)
        except SettingsError as error:
            note = str(error)
        self._hold(chosen)
        self.query_one(KeyList).replace_option_prompt(id, self._line(id))
        self._say(note)

    def _say(self, words: str) -> None:
        self.query_one("#note", Static).update(Text(printable(words)))
