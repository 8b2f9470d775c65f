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
from app.tui.widgets.token_field import TokenField
from app.tui.widgets.too_small import TooSmall

BUTTONS = {
    "load": "Load it and chat",
    "token": "Token",
    "retry": "Try again",
    "toggle": "Pause",
    "cancel": "Cancel, keep parts",
    "demo": "Demo",
    "other": "Another",
    "details": "Details",
    "use": "Use once",
    "keep": "Use and keep",
    "close": "Back",
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
TYPING = ("use", "keep", "close")
"""The same while a token is typed."""
TOO_SHORT = "That is too short for a token."


class DownloadScreen(Screen[None]):
    """The program's download."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "do('toggle')", "pause, go on", id="download.pause"),
        Binding("x", "do('cancel')", "cancel", id="download.cancel"),
        Binding("r", "do('retry')", "again", id="download.again"),
        Binding("t", "do('token')", "token", id="download.token"),
        Binding("d", "do('demo')", "demo", id="download.demo"),
        Binding("escape", "back", "back", id="download.back"),
        Binding("pageup", "scroll(-1)", "Up", show=False),
        Binding("pagedown", "scroll(1)", "Down", show=False),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, models: ModelChoice) -> None:
        super().__init__()
        self._models = models
        self._stage: Stage | None = None
        self._typing = False

    def compose(self) -> ComposeResult:
        yield TopBar()
        with VerticalScroll(id="download", can_focus=False):
            yield Static("", id="card", markup=False)
            yield Static("", id="total", markup=False)
            yield Static("", id="files", markup=False)
            yield Static("", id="lines", markup=False)
        yield TokenField()
        with Horizontal(id="actions"):
            for name, label in BUTTONS.items():
                yield Button(Content(f"[ {label} ]"), name=name, compact=True)
        yield KeyBar()
        yield TooSmall()

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
            self._close_token()
            self._offer(state)

    def _offer(self, state: DownloadState) -> None:
        self._show_card(words.card(state, runs=self._models.can_run_large))
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

    def _show_card(self, text: Text | None) -> None:
        card = self.query_one("#card", Static)
        card.display = text is not None
        card.update(text or Text())
        card.set_class(self.state.stage is Stage.FAILED, "-problem")

    def _focus_first(self) -> None:
        first = self._offered[0]
        for button in self.query(Button):
            if button.name == first:
                button.focus()

    @property
    def _offered(self) -> tuple[str, ...]:
        if self._typing:
            return TYPING
        error = self.state.error
        offered = OFFERED[self.state.stage]
        if error is None or not error.detail:
            offered = tuple(name for name in offered if name != "details")
        if error is not None and error.kind in words.TOKEN_HELPS:  # five would not fit in 60 cells
            offered = ("token", *(name for name in offered if name != "details"))
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
            case "token" | "use" | "keep" | "close":
                self._do_with_token(what)
            case "other":
                self.dismiss(None)
                models.show()

    def action_back(self) -> None:
        """Out of the field for a token, or to the models."""
        self.action_do("close" if self._typing else "other")

    # --- a token ------------------------------------------------------------------------------

    def _do_with_token(self, what: str) -> None:
        match what:
            case "token":
                self._open_token()
            case "close":
                self._close_token()
                self._offer(self.state)
            case _:
                self._use_token(keep=what == "keep")

    def _open_token(self, note: str = "") -> None:
        self._typing = True
        self._offer(self.state)
        self._show_card(words.token_card(self.state, note))
        self.query_one(TokenField).open()

    def _close_token(self) -> None:
        self._typing = False
        self.query_one(TokenField).close()

    def on_token_field_entered(self, event: TokenField.Entered) -> None:
        """Enter in the field is the first button."""
        event.stop()
        self._use_token(keep=False)

    def _use_token(self, *, keep: bool) -> None:
        token = self.query_one(TokenField).take()
        if token is None:
            self._open_token(TOO_SHORT)
            return
        self._models.download.use_token(token, keep=keep)
        self.action_do("retry")
