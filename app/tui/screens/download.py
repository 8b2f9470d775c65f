"""A download: how far, how fast, what is checked; pause, go on, cancel; what to do when it fails.

Only a view: the download is the program's, goes on when this screen is left, and stands here again
when somebody comes back.
"""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Button, Static

from app.text import printable
from app.tui import download_words as words
from app.tui.download_state import DownloadState, Stage
from app.tui.model_choice import ModelChoice
from app.tui.widgets.bars import KeyBar, TopBar

BUTTONS = {
    "load": "Load it and chat",
    "retry": "Try again",
    "toggle": "Pause",
    "cancel": "Cancel, keep parts",
    "demo": "Demo",
    "other": "Another",
    "details": "Details",
}
OFFERED: dict[Stage, tuple[str, ...]] = {
    Stage.ASKING: ("toggle", "cancel", "demo"),
    Stage.FETCHING: ("toggle", "cancel", "demo"),
    Stage.PAUSED: ("toggle", "cancel", "demo"),
    Stage.READY: ("load", "demo", "other"),
    Stage.FAILED: ("retry", "demo", "other", "details"),
    Stage.CANCELLED: ("retry", "demo", "other"),
}
"""What can be done, the likeliest first: it gets the focus."""


class DownloadScreen(Screen[None]):
    """The program's download."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "do('toggle')", "pause, go on", id="download.pause"),
        Binding("x", "do('cancel')", "cancel", id="download.cancel"),
        Binding("r", "do('retry')", "again", id="download.again"),
        Binding("d", "do('demo')", "demo", id="download.demo"),
        Binding("escape", "do('other')", "back", id="download.back"),
        Binding("pageup", "scroll(-1)", "Up", show=False),
        Binding("pagedown", "scroll(1)", "Down", show=False),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, models: ModelChoice) -> None:
        super().__init__()
        self._models = models
        self._stage: Stage | None = None

    def compose(self) -> ComposeResult:
        yield TopBar()
        with VerticalScroll(id="download", can_focus=False):
            yield Static("", id="card", markup=False)
            yield Static("", id="total", markup=False)
            yield Static("", id="files", markup=False)
            yield Static("", id="lines", markup=False)
        with Horizontal(id="actions"):
            for name, label in BUTTONS.items():
                yield Button(Content(f"[ {label} ]"), name=name, compact=True)
        yield KeyBar()
        yield Static("orl-chat needs a window of 60 x 20 at least.", id="too-small")

    @property
    def state(self) -> DownloadState:
        """What is shown."""
        state = self._models.download.state
        assert state is not None, "there is no download to show"
        return state

    def on_mount(self) -> None:
        """As it stands."""
        self.query_one("#download").border_title = printable(self.state.repo)
        self.show(self.state)

    def on_resize(self) -> None:
        """The bar fits the window."""
        if self.is_mounted:
            self.show(self.state)

    def show(self, state: DownloadState) -> None:
        """Draw it; where its stage changed, offer what can be done now."""
        if not self.is_mounted:
            return
        width = max(40, self.size.width - 4)
        self.query_one(TopBar).show(words.title(state))
        self.query_one("#total", Static).update(words.total(state, width))
        self.query_one("#files", Static).update(words.files(state, width))
        self.query_one("#lines", Static).update(words.log(state))
        if state.stage is not self._stage:
            self._stage = state.stage
            self._offer(state)

    def _offer(self, state: DownloadState) -> None:
        card = self.query_one("#card", Static)
        text = words.card(state, runs=self._models.can_run_large)
        card.display = text is not None
        card.update(text or Text())
        card.set_class(state.stage is Stage.FAILED, "-problem")
        offered = self._offered
        for button in self.query(Button):
            name = button.name or ""
            button.display = name in offered
            button.label = Content(f"[ {words.label(name, BUTTONS[name], state)} ]")
            button.refresh(layout=True)  # a new label alone keeps the old one's width
        self.refresh_bindings()
        self._focus_first()
        if state.stage is Stage.READY and self.is_current and self._models.loads_by_itself(state):
            self._models.choose(state.repo)

    def _focus_first(self) -> None:
        first = self._offered[0]
        for button in self.query(Button):
            if button.name == first:
                button.focus()

    @property
    def _offered(self) -> tuple[str, ...]:
        state = self.state
        offered = OFFERED[state.stage]
        if state.error is None or not state.error.detail:
            offered = tuple(name for name in offered if name != "details")
        return offered

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of what can be done now."""
        if action == "do" and parameters and self._models.download.state is not None:
            return parameters[0] in (*self._offered, "other")
        return True

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button."""
        event.stop()
        self.action_do(event.button.name or "")

    def action_scroll(self, step: int) -> None:
        """Page keys move the list."""
        area = self.query_one("#download", VerticalScroll)
        area.scroll_page_down(animate=False) if step > 0 else area.scroll_page_up(animate=False)

    def action_do(self, what: str) -> None:
        """One of BUTTONS."""
        models, state = self._models, self.state
        match what:
            case "toggle":
                models.download.pause_or_go_on()
            case "cancel":
                models.download.cancel()
            case "retry":
                models.fetch(state.repo)
                self.show(state)
            case "demo":
                models.use_demo_meanwhile()
            case "load":
                models.choose(state.repo)
            case "details" if state.error is not None:
                from app.tui.screens.text import TextScreen

                self.app.push_screen(TextScreen("Details", state.error.detail))
            case "other":
                self.dismiss(None)
                models.show()
