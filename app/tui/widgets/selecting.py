"""The selected message of a conversation: what the keys of a message act on.

Up and Down move, and a message that is higher than the window is read to its end before it is left.
"""

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget

from app.tui.conversation import Entry
from app.tui.widgets.messages import MessageWidget

OLDER, NEWER = "the version before, with what followed it", "the version after"
CODE_HELP = "copy a code block; once more, the next one"


class Selecting(VerticalScroll):
    """Messages of which one is selected."""

    BINDINGS = [
        Binding("y", "screen.copy('text')", "copy text", id="msg.text"),
        Binding("m", "screen.copy('markdown')", "copy Markdown", id="msg.markdown"),
        Binding("c", "screen.copy('code')", "copy code", id="msg.code", tooltip=CODE_HELP),
        Binding("left_square_bracket", "screen.leaf(-1)", "older", id="msg.older", tooltip=OLDER),
        Binding("right_square_bracket", "screen.leaf(1)", "newer", id="msg.newer", tooltip=NEWER),
        Binding("up", "select(-1)", "earlier message", show=False, id="msg.up"),
        Binding("down", "select(1)", "later message", show=False, id="msg.down"),
    ]

    class Below(Message):
        """Down was pressed at the last message."""

    _marked: MessageWidget | None = None
    """The selected message; it may be gone by now."""

    def _messages(self) -> list[MessageWidget]:
        """Those that are mounted, in order."""
        raise NotImplementedError

    async def show_more(self, side: int) -> None:
        """Mount some messages above (-1) or below (1)."""
        raise NotImplementedError

    @property
    def selected(self) -> Entry | None:
        """The message that the keys act on, while the focus is here."""
        marked = self._marked
        here = self.screen.focused is self and marked is not None and marked.is_attached
        return marked.entry if here and marked is not None else None

    def on_focus(self) -> None:
        """The message that was selected before, else the newest."""
        messages = self._messages()
        if self._marked in messages:
            self._mark(self._marked)
        elif messages:
            self._mark(messages[-1])

    def on_blur(self) -> None:
        """The selection stays, and is seen again with the focus."""
        if self._marked is not None:
            self._marked.select(False)

    def on_message_widget_clicked(self, event: MessageWidget.Clicked) -> None:
        """A click selects."""
        event.stop()
        self._mark(event.widget)

    async def action_select(self, step: int) -> None:
        """The message above or below; first, what is not seen yet of this one."""
        messages = self._messages()
        if messages and self._marked not in messages:
            self._mark(messages[-1])
        if self._marked is None or not messages or self._read_on(self._marked, step):
            return
        if self._marked is messages[0 if step < 0 else -1]:
            await self.show_more(step)
            messages = self._messages()
        index = messages.index(self._marked) + step
        if index >= len(messages):
            self.post_message(self.Below())
        elif index >= 0:
            self.release_anchor()
            self._mark(messages[index])
            self.call_after_refresh(self._show_edge, messages[index], step)

    def _read_on(self, widget: Widget, step: int) -> bool:
        """Scroll within a message that goes on beyond the window; False when it does not."""
        height = self.scrollable_content_region.height
        region = widget.virtual_region
        hidden = self.scroll_y - region.y if step < 0 else region.bottom - self.scroll_y - height
        if hidden <= 1:
            return False
        self.scroll_to(y=self.scroll_y + step * min(hidden, max(1, height - 2)), animate=False)
        return True

    def _show_edge(self, widget: Widget, step: int) -> None:
        """Bring a message into the window; of a high one, the end that was come from."""
        height = self.scrollable_content_region.height
        region = widget.virtual_region
        top, bottom = region.y, region.bottom - height
        if top >= self.scroll_y >= bottom:
            return
        self.scroll_to(y=max(top, bottom) if step < 0 else min(top, bottom), animate=False)

    def _mark(self, widget: MessageWidget) -> None:
        if self._marked is not None:
            self._marked.select(False)
        self._marked = widget
        widget.select(self.screen.focused is self)
        self.refresh_bindings()
