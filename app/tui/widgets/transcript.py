"""The conversation, scrolled. Only the latest answers are widgets; older ones come on request.

A Markdown answer is about 14 widgets and appending slows down with every one that is mounted, so
at most `KEPT` answers are, however long the chat. A row at the top brings back older ones.

With the focus, one message is selected: what the keys of a message act on. Up and Down move, and a
message that is higher than the window is read to its end before it is left.
"""

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.text import printable
from app.tui.conversation import Conversation, Entry
from app.tui.part import above
from app.tui.widgets.messages import Answer, MessageWidget, UserMessage

KEPT = 20
MORE = 10
OLDER, NEWER = "the version before, with what followed it", "the version after"
CODE_HELP = "copy a code block; once more, the next one"


class EarlierRow(Static):
    """Says how much is above, and brings it back on a click."""

    class Wanted(Message):
        """It was clicked."""

    def show(self, hidden: int) -> None:
        """How many messages are not mounted."""
        self.display = hidden > 0
        self.update(Text(f"↑ {hidden} earlier messages"))

    def on_click(self, event: events.Click) -> None:
        """Bring some back."""
        event.stop()
        self.post_message(self.Wanted())


class Talk(Vertical):
    """What scrolls. At least as high as the window, or an anchor would push it down."""


class Transcript(VerticalScroll):
    """The messages and cards of one conversation, following its end."""

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

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.conversation = Conversation()
        self._first = 0
        self._loading = False
        self._below: float | None = None
        """Lines below the first one that was read when older messages were asked for."""
        self._marked: MessageWidget | None = None
        """The selected message; it may be gone by now."""

    def compose(self) -> ComposeResult:
        row = EarlierRow(markup=False)
        row.display = False
        with Talk():
            yield row

    @property
    def _talk(self) -> Talk:
        return self.query_one(Talk)

    async def on_earlier_row_wanted(self, event: EarlierRow.Wanted) -> None:
        """Bring some back."""
        event.stop()
        await self.show_earlier()

    def on_mount(self) -> None:
        """Stay at the end until the user scrolls."""
        self.follow()

    def follow(self) -> None:
        """Go to the end and stay there; twice, because what was just mounted has no size yet."""
        self._below = None
        self.anchor()
        self.call_after_refresh(self.anchor)

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
        if step < 0 and self._marked is messages[0] and self._first > 0:
            await self.show_earlier()
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

    def show_entry(self, entry: Entry) -> None:
        """Select a message and bring it into the window; one that is not mounted is left alone."""
        widget = next((w for w in self._messages() if w.entry is entry), None)
        if widget is not None:
            self._mark(widget)
            self.release_anchor()
            self.call_after_refresh(self._show_edge, widget, -1)

    def title(self, title: str) -> None:
        """The chat's title: what a user typed, so never markup."""
        self.border_title = Content(printable(title) or "New chat")

    async def sync(self, conversation: Conversation) -> None:
        """Bring the widgets in line with the conversation as it is now: another one, new messages
        at its end, messages that were taken back, another version and what followed that. Calling
        it too often is harmless."""
        newest = above(conversation.entries, len(conversation.entries), KEPT)
        if conversation is not self.conversation or self._first > newest:
            self.conversation = conversation
            self._first = newest
            stale: list[Widget] = self._shown()
        else:
            wanted = {id(entry) for entry in conversation.entries}
            stale = [w for w in self._messages() if id(w.entry) not in wanted]
        mounted = {id(w.entry) for w in self._messages() if w not in stale}
        entries = conversation.entries[self._first :]
        new = [self._widget(entry) for entry in entries if id(entry) not in mounted]
        if stale or new:
            with self.app.batch_update():
                await self._talk.remove_children(stale)
                await self._talk.mount_all(new)
            self.follow()
            if self.screen.focused is self and self._marked in stale:
                self.on_focus()
        await self._trim()
        self._refresh_row()

    async def show_top(self, widget: Widget) -> None:
        """Something to be read from its beginning, in an empty conversation."""
        self.anchor(False)
        await self._talk.mount(widget)
        self.scroll_home(animate=False)

    async def add(self, widget: Widget) -> None:
        """A card at the end."""
        await self._talk.mount(widget)
        self.follow()

    def answer(self, entry: Entry) -> Answer | None:
        """The widget of an answer, if it is mounted."""
        found = (w for w in self._messages() if w.entry is entry)
        return next((w for w in found if isinstance(w, Answer)), None)

    async def show_found(self, message_id: int) -> None:
        """Go to a message, however far above, and mark it as what a search found."""
        entries = self.conversation.entries
        place = next((i for i, e in enumerate(entries) if e.id == message_id), len(entries))
        if place < self._first:
            await self._mount_above(above(entries, place + 1, 1))
        for widget in (w for w in self._messages() if w.entry.id == message_id):
            widget.mark_found()
            self._marked = widget
            self.call_after_refresh(self._go_to, widget)

    def _go_to(self, widget: Widget) -> None:
        self._below = None
        self.anchor(False)
        self.scroll_to_widget(widget, top=True, animate=False, immediate=True)

    async def show_earlier(self) -> None:
        """Mount some older messages above, without moving what is being read."""
        if self._first == 0 or self._loading:
            return
        self._loading = True
        try:
            self.release_anchor()
            self._below = self.max_scroll_y - self.scroll_y
            await self._mount_above(above(self.conversation.entries, self._first, MORE))
            self.call_after_refresh(self._back_to_reading)
        finally:
            self._loading = False

    async def _mount_above(self, start: int) -> None:
        entries = self.conversation.entries[start : self._first]
        self._first = start
        await self._talk.mount_all([self._widget(entry) for entry in entries], after=0)
        self._refresh_row()

    def _back_to_reading(self) -> None:
        if self._below is not None:
            self.scroll_to(y=self.max_scroll_y - self._below, animate=False)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Reaching the top by scrolling brings older messages."""
        super().watch_scroll_y(old, new)
        if new <= 0 < old and self._first > 0:
            self.call_later(self.show_earlier)

    async def _trim(self) -> None:
        """Unmount what is far above the end."""
        if sum(isinstance(w, Answer) for w in self._messages()) <= KEPT:
            return
        entries = self.conversation.entries
        self._first = above(entries, len(entries), KEPT)
        kept = {id(entry) for entry in entries[self._first :]}
        await self._talk.remove_children([w for w in self._messages() if id(w.entry) not in kept])

    def _messages(self) -> list[MessageWidget]:
        return [w for w in self._talk.children if isinstance(w, MessageWidget)]

    def _shown(self) -> list[Widget]:
        return [w for w in self._talk.children if not isinstance(w, EarlierRow)]

    def _refresh_row(self) -> None:
        self.query_one(EarlierRow).show(self._first)

    def _widget(self, entry: Entry) -> Widget:
        if entry.role == "user":
            return UserMessage(entry)
        return Answer(entry)
