"""The lines that frame the chat: the top bar, the status line and the keys."""

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static


class TopBar(Widget):
    """The program on the left, what answers on the right."""

    ALLOW_SELECT = False

    def compose(self) -> ComposeResult:
        yield Static("orl-chat", id="program")
        yield Static("", id="model", markup=False)

    def show(self, text: str) -> None:
        """Say what answers."""
        self.query_one("#model", Static).update(Text(text, overflow="ellipsis", no_wrap=True))


class StatusLine(Widget):
    """What is going on, on the left; how the block is shown, on the right."""

    ALLOW_SELECT = False

    def compose(self) -> ComposeResult:
        yield Static("", id="doing", markup=False)
        yield Static("", id="viewing", markup=False)

    def show(self, doing: str, viewing: str, *, alert: bool = False) -> None:
        """Say both; only what changed is painted."""
        self.query_one("#doing", Static).update(Text(doing, overflow="ellipsis", no_wrap=True))
        self.query_one("#viewing", Static).update(Text(viewing, no_wrap=True))
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
        """One hint a binding, in the order they are declared; the rest stays in F1."""
        key_style = self.get_component_rich_style("keys--key")
        word_style = self.get_component_rich_style("keys--word")
        line, room = Text(no_wrap=True), self.size.width - 1
        seen: set[str] = set()
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if not binding.show or not active.enabled or binding.action in seen:
                continue
            seen.add(binding.action)
            key = self._key(binding)
            if cell_len(key) + cell_len(binding.description) + 3 > room - line.cell_len:
                continue
            click = Style(meta={"@click": f"app.simulate_key('{binding.key.split(',')[0]}')"})
            line.append(" " + key, key_style + click)
            line.append(f" {binding.description} ", word_style + click)
        return line

    def _key(self, binding: Binding) -> str:
        return self.app.get_key_display(binding)
