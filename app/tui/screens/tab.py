"""What the tabs beside the chat have in common: the frame, and the way back."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.tui.tabs import CHAT
from app.tui.widgets.bars import KeyBar, StatusLine, TopBar
from app.tui.widgets.too_small import TooSmall

if TYPE_CHECKING:
    from app.tui.app import OrlChat


class TabScreen(Screen[None]):
    """A tab: the top bar, a body, what is going on, and the keys."""

    TAB: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "to_chat", "chat", id="tab.back", tooltip="back to the chat"),
    ]

    def compose(self) -> ComposeResult:
        yield TopBar(self.TAB)
        yield from self.body()
        yield StatusLine()
        yield KeyBar()
        yield TooSmall()

    def body(self) -> ComposeResult:
        """The parts between the bars."""
        raise NotImplementedError

    def look(self) -> None:
        """Show what is true by now; called whenever the tab comes to the front."""
        raise NotImplementedError

    @property
    def program(self) -> "OrlChat":
        """The app, by its own type."""
        return cast("OrlChat", self.app)

    def on_screen_resume(self) -> None:
        """The tab comes to the front."""
        self.program.refresh_top()
        # The first time its parts come with the next frame.
        self.call_after_refresh(self.program.refresh_top)
        self.call_after_refresh(self.look)

    def say(self, words: str, *, alert: bool = False) -> None:
        """Put words into the status line."""
        self.query_one(StatusLine).show(words, "", alert=alert)

    def action_to_chat(self) -> None:
        """Back to the chat."""
        self.program.action_tab(CHAT)
