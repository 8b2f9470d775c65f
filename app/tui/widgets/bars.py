"""The lines that frame the chat: the top bar, the status line and the keys."""

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from app.text import printable
from app.tui.tabs import TABS
from app.tui.widgets.words import Words

Hint = tuple[str, str, str]
"""A key as it is shown, what it does, the key to press."""


class TabLine(Widget):
    """The tabs by name, the open one marked; a click opens one. Wide windows show the keys too."""

    COMPONENT_CLASSES = {"tabs--key", "tabs--name", "tabs--open"}
    ALLOW_SELECT = False

    def __init__(self, open: str) -> None:
        super().__init__()
        self._open = open

    def render(self) -> Text:
        """One word a tab, or two."""
        line = Text(no_wrap=True)
        for tab in TABS:
            click = Style(meta={"@click": f"app.tab('{tab.id}')"})
            if self.screen.has_class("-wide"):
                key = self.get_component_rich_style("tabs--key")
                line.append(f" {tab.key.upper()}", key + click)
            name = "tabs--open" if tab.id == self._open else "tabs--name"
            line.append(f" {tab.title} ", self.get_component_rich_style(name) + click)
        return line


class TopBar(Widget):
    """The program and its tabs on the left, what answers on the right. No tab, no tabs."""

    ALLOW_SELECT = False

    def __init__(self, tab: str | None = None) -> None:
        super().__init__()
        self._tab = tab

    def compose(self) -> ComposeResult:
        yield Static("orl-chat", id="program")
        if self._tab is not None:
            yield TabLine(self._tab)
        yield Words(id="model", fills=True)

    def on_resize(self) -> None:
        """A wide window names the keys of the tabs, a narrow one does not."""
        for tabs in self.query(TabLine):
            tabs.refresh(layout=True)

    def show(self, text: str) -> None:
        """Say what answers; nothing yet where the bar's parts are not there, as long as its screen
        is being opened."""
        for words in self.query("#model").results(Words):
            words.say(_line(text))


class StatusLine(Widget):
    """What is going on, on the left; how the block is shown, on the right."""

    ALLOW_SELECT = False

    def compose(self) -> ComposeResult:
        yield Words(id="doing", fills=True)
        yield Words(id="viewing")

    def show(self, doing: str, viewing: str, *, alert: bool = False) -> None:
        """Say both; only what changed is painted."""
        self.query_one("#doing", Words).say(_line(doing))
        self.query_one("#viewing", Words).say(Text(viewing, no_wrap=True))
        self.set_class(alert, "-alert")


class KeyBar(Widget):
    """The keys in force, as many as fit; a click does what the key does."""

    COMPONENT_CLASSES = {"keys--key", "keys--word"}
    ALLOW_SELECT = False

    def on_mount(self) -> None:
        """Follow the bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen) -> None:
        self.refresh()

    def render(self) -> Text:
        """One hint a binding, in the order they are declared; the rest stays in Ctrl+P and F1."""
        hints = self._hints()
        last = [("^p", "all", "ctrl+p")] if self.app.use_command_palette else []
        room = self.size.width - sum(_width(hint) for hint in last)
        line = Text(no_wrap=True)
        for hint in hints:
            if line.cell_len + _width(hint) <= room:
                self._append(line, hint)
        for hint in last:
            line.append(" " * (room - line.cell_len))
            self._append(line, hint)
        return line

    def _hints(self) -> list[Hint]:
        """Stop first, then the focused part's keys, the screen's, the program's."""
        actives = [a for a in self.screen.active_bindings.values() if a.enabled and a.binding.show]
        shown: dict[str, Binding] = {}
        for active in sorted(actives, key=declared):
            shown.setdefault(active.binding.action, active.binding)
        ordered = sorted(shown.values(), key=lambda binding: binding.action != "stop")
        return [(self.app.get_key_display(b), b.description, b.key) for b in ordered]

    def _append(self, line: Text, hint: Hint) -> None:
        key, word, press = hint
        click = Style(meta={"@click": f"app.simulate_key('{press.split(',')[0]}')"})
        line.append(f" {key}", self.get_component_rich_style("keys--key") + click)
        line.append(f" {word} ", self.get_component_rich_style("keys--word") + click)


def _line(text: str) -> Text:
    """What a folder's name or the engine said, cut where it does not fit."""
    return Text(printable(text), overflow="ellipsis", no_wrap=True)


def _width(hint: Hint) -> int:
    return cell_len(hint[0]) + cell_len(hint[1]) + 3


def declared(active: ActiveBinding) -> tuple[int, int]:
    """Where a binding was written down: inner nodes first, in the order of their class."""
    ids = [b.id if isinstance(b, Binding) else None for b in type(active.node).BINDINGS]
    id = active.binding.id
    return -len(active.node.ancestors), ids.index(id) if id in ids else len(ids)
