"""The conversation, scrolled. Only the latest answers are widgets; older ones come on request.

A Markdown answer is about 14 widgets and appending slows down with every one that is mounted, so
at most `KEPT` answers are, however long the chat. A row at the top brings back older ones.
"""

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.text import printable
from app.tui.conversation import Conversation, Entry
from app.tui.widgets.messages import Answer, UserMessage

KEPT = 20
MORE = 10


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

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.conversation = Conversation()
        self._first = 0
        self._loading = False
        self._below: float | None = None
        """Lines below the first one that was read when older messages were asked for."""

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

    def title(self, title: str) -> None:
        """The chat's title: what a user typed, so never markup."""
        self.border_title = Content(printable(title) or "New chat")

    async def sync(self, conversation: Conversation) -> None:
        """Bring the widgets in line with the conversation as it is now: another one, new messages
        at its end, messages that were taken back. Calling it too often is harmless."""
        if conversation is not self.conversation:
            self.conversation = conversation
            self._first = _start(conversation.entries, len(conversation.entries), KEPT)
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
        """Go to a message and mark it as what a search found, if it is in this conversation."""
        entries = self.conversation.entries
        place = next((i for i, entry in enumerate(entries) if entry.id == message_id), None)
        if place is None:
            return
        if place < self._first:
            start = _start(entries, place + 1, 1)
            widgets = [self._widget(entry) for entry in entries[start : self._first]]
            self._first = start
            await self._talk.mount_all(widgets, after=0)
            self._refresh_row()
        for widget in self._messages():
            if widget.entry is entries[place]:
                widget.add_class("-found")
                widget.border_title = "found"
                self.anchor(False)
                self.call_after_refresh(self._go_to, widget)

    def _go_to(self, widget: Widget) -> None:
        self.anchor(False)
        self.scroll_to_widget(widget, top=True, animate=False, immediate=True)

    async def show_earlier(self) -> None:
        """Mount some older messages above, without moving what is being read."""
        if self._first == 0 or self._loading:
            return
        self._loading = True
        try:
            entries = self.conversation.entries
            start = _start(entries, self._first, MORE)
            widgets = [self._widget(entry) for entry in entries[start : self._first]]
            self._first = start
            self.release_anchor()
            self._below = self.max_scroll_y - self.scroll_y
            await self._talk.mount_all(widgets, after=0)
            self._refresh_row()
            self.call_after_refresh(self._back_to_reading)
        finally:
            self._loading = False

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
        self._first = _start(entries, len(entries), KEPT)
        kept = {id(entry) for entry in entries[self._first :]}
        await self._talk.remove_children([w for w in self._messages() if id(w.entry) not in kept])

    def _messages(self) -> list[UserMessage | Answer]:
        return [w for w in self._talk.children if isinstance(w, UserMessage | Answer)]

    def _shown(self) -> list[Widget]:
        return [w for w in self._talk.children if not isinstance(w, EarlierRow)]

    def _refresh_row(self) -> None:
        self.query_one(EarlierRow).show(self._first)

    def _widget(self, entry: Entry) -> Widget:
        if entry.role == "user":
            return UserMessage(entry)
        return Answer(entry, attempt=self.conversation.attempt(entry))


def _start(entries: Sequence[Entry], end: int, answers: int) -> int:
    """Where to begin so that `answers` answers before `end` are shown with their questions."""
    index = end
    while index > 0:
        index -= 1
        if entries[index].role == "assistant":
            answers -= 1
            if answers == 0:
                break
    while index > 0 and entries[index].role == "assistant":
        index -= 1
    return index
