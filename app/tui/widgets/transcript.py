"""The conversation, scrolled. Only the answers around what is read are widgets.

A Markdown answer is about 14 widgets, and whatever grows lays out every one that is mounted. So
only as many answers are while the end is followed as surely fill the window, and `MOST` at any
time, however long the chat: what is scrolled to is built, and as much goes at the other end. A row
at either end says how much is beyond it, and brings some on a click.
"""

import asyncio
from typing import Any

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.message import Message
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from app.text import printable
from app.tui.conversation import Conversation, Entry
from app.tui.part import Part, around, at_edge, grown
from app.tui.widgets.messages import Answer, MessageWidget, UserMessage
from app.tui.widgets.selecting import Selecting
from app.tui.widgets.words import Words

MORE, MOST = 6, 20
TURN = 6
"""Lines that a question and its answer take at least: each a heading, a line and a margin."""
ABOVE, BELOW = -1, 1


class HiddenRow(Words):
    """Says how much is beyond it, on one side, and brings some of it on a click."""

    class Wanted(Message):
        """It was clicked."""

        def __init__(self, side: int) -> None:
            super().__init__()
            self.side = side

    def __init__(self, side: int) -> None:
        super().__init__(fills=True)
        self.side = side
        self.display = False

    def show(self, hidden: int) -> None:
        """How many messages are not mounted."""
        self.display = hidden > 0
        words = "↑ {} earlier messages" if self.side == ABOVE else "↓ {} later messages"
        self.say(Text(words.format(hidden)))

    def on_click(self, event: events.Click) -> None:
        """Bring some."""
        event.stop()
        self.post_message(self.Wanted(self.side))


class Talk(Vertical):
    """What scrolls. At least as high as the window, or an anchor would push it down."""


class Transcript(Selecting):
    """The messages and cards of one conversation, following its end."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.conversation = Conversation()
        self._part = Part()
        self._mounting = asyncio.Lock()  # keys and messages come from different tasks
        self._moving = False
        self._reading: tuple[Widget, int] | None = None
        """What the window begins in, and its line at the last layout; None at the end."""

    def compose(self) -> ComposeResult:
        with Talk():
            yield HiddenRow(ABOVE)
            yield HiddenRow(BELOW)

    @property
    def _talk(self) -> Talk:
        return self.query_one(Talk)

    @property
    def kept(self) -> int:
        """Answers that fill the window, whatever their length."""
        return min(MOST, self.size.height // TURN + 1)

    async def on_hidden_row_wanted(self, event: HiddenRow.Wanted) -> None:
        """Bring some."""
        event.stop()
        await self.show_more(event.side)

    def on_mount(self) -> None:
        """Stay at the end until the user scrolls."""
        self.follow()

    async def on_resize(self) -> None:
        """A window that has grown has room for more of what it follows."""
        edge = at_edge(self.conversation.entries, BELOW, self.kept)
        at_end = self._reading is None and not self._part.hidden(BELOW)
        if at_end and edge.first < self._part.first:
            await self._show(edge)
            self.follow()

    def follow(self) -> None:
        """Go to the end and stay there; twice, because what was just mounted has no size yet."""
        self._moving, self._reading = False, None
        self.anchor()
        self.call_after_refresh(self.anchor)

    def title(self, title: str) -> None:
        """The chat's title: what a user typed, so never markup."""
        self.border_title = Content(printable(title) or "New chat")

    async def sync(self, conversation: Conversation) -> None:
        """Bring the widgets in line with the conversation as it is now: another one, new messages
        at its end, messages that were taken back, another version and what followed that. Calling
        it too often is harmless."""
        entries = conversation.entries
        other = conversation is not self.conversation
        if other:
            self.conversation = conversation
            await self._talk.remove_children([w for w in self._talk.children if not _is_row(w)])
        part, edge = self._part, at_edge(entries, BELOW, self.kept)
        changed = await self._show(edge if other or len(entries) != part.count else part)
        if changed:
            await self._show(edge)
        if (changed or other) and entries:  # an empty one has a beginning to be read
            self.follow()
            if self.screen.focused is self and self._marked not in self._messages():
                self.on_focus()

    async def show_top(self, widget: Widget) -> None:
        """Something to be read from its beginning, in an empty conversation."""
        await self._talk.mount(widget, before=self._row(BELOW))
        self._to_top()
        self.call_after_refresh(self._to_top)  # behind the anchor of a first mount

    def _to_top(self) -> None:
        self.anchor(False)
        self.scroll_home(animate=False)

    async def add(self, widget: Widget) -> None:
        """A card at the end."""
        await self._show(at_edge(self.conversation.entries, BELOW, self.kept))
        await self._talk.mount(widget, before=self._row(BELOW))
        self.follow()

    def answer(self, entry: Entry) -> Answer | None:
        """The widget of an answer, if it is mounted."""
        found = (w for w in self._messages() if w.entry is entry)
        return next((w for w in found if isinstance(w, Answer)), None)

    async def show_found(self, message_id: int) -> None:
        """Go to a message, however far above, and mark it as what a search found."""
        found = (e for e in self.conversation.entries if e.id == message_id)
        for widget in await self._brought(next(found, None)):
            widget.mark_found()
            self._marked = widget
            self.call_after_refresh(self._go_to, widget)

    async def show_entry(self, entry: Entry) -> None:
        """Select a message, however far above, and bring it into the window."""
        for widget in await self._brought(entry):
            self._mark(widget)
            self.call_after_refresh(self._reveal, widget)

    async def _brought(self, entry: Entry | None) -> list[MessageWidget]:
        """The widget of a message, mounted if it was not; none for a message that is not here."""
        entries = self.conversation.entries
        place = next((i for i, e in enumerate(entries) if e is entry), None)
        if place is not None and not self._part.first <= place < self._part.end:
            await self._show(around(entries, place, self.kept))
        return [w for w in self._messages() if w.entry is entry]

    def _reveal(self, widget: MessageWidget) -> None:
        self._reading = None
        self.release_anchor()
        self._show_edge(widget, ABOVE)

    def _go_to(self, widget: Widget) -> None:
        self._reading = None
        self.release_anchor()
        self.scroll_to_widget(widget, top=True, animate=False, immediate=True)

    async def action_scroll_home(self) -> None:  # type: ignore[override]
        """The first message of the conversation, however far up."""
        self.release_anchor()
        await self._show(at_edge(self.conversation.entries, ABOVE, self.kept))
        self.scroll_home(animate=False)

    async def action_scroll_end(self) -> None:  # type: ignore[override]
        """The last message, and stay there."""
        await self._show(at_edge(self.conversation.entries, BELOW, self.kept))
        self.follow()

    async def show_more(self, side: int) -> None:
        """Mount some messages above or below, without moving what is being read; nothing when the
        window has left that end meanwhile."""
        async with self._mounting:
            if self._moving or not self._part.hidden(side) or not self._is_near(side):
                return
            self._moving = True
            self._reading = self._reading or self._first_seen()
            self.release_anchor()
            try:
                part = grown(self._part, self.conversation.entries, side, MORE, MOST)
                await self._mount_part(part)
            finally:
                self.call_after_refresh(self._moved)

    def _moved(self) -> None:
        self._moving = False

    def _first_seen(self) -> tuple[Widget, int] | None:
        seen = (w for w in self._messages() if w.virtual_region.bottom > self.scroll_y)
        first = next(seen, None)
        return None if first is None else (first, first.virtual_region.y)

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """The layout; when what is read moves in it, the window moves along. Here and not after
        it, as Textual's own anchor does, so that no frame shows anything else."""
        arranged = super().arrange(size, optimal)
        if self._reading is not None and arranged.placements:
            widget, before = self._reading
            inside = self._talk.arrange(arranged.placements[0].region.size)
            line = next((p.region.y for p in inside.placements if p.widget is widget), before)
            self._reading = widget, line
            self._shift(line - before)
        return arranged

    def scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> None:
        """At once, as `y` may mean another line after the next layout."""
        super().scroll_to(x, y, **{**options, "immediate": True})

    def _shift(self, lines: int) -> None:
        for name in ("scroll_y", "scroll_target_y"):
            self.set_reactive(getattr(Widget, name), max(0, getattr(self, name) + lines))
        self.vertical_scrollbar.set_reactive(ScrollBar.position, self.scroll_y)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Coming near an end of what is mounted brings more, before the end is seen."""
        super().watch_scroll_y(old, new)
        at_end = new >= self.max_scroll_y and not self._part.hidden(BELOW)
        self._reading = None if at_end else self._first_seen()
        side = ABOVE if new < old else BELOW
        if self._is_near(side) and not self._moving and self._part.hidden(side):
            self.call_later(self.show_more, side)

    def _is_near(self, side: int) -> bool:
        beyond = self.scroll_y if side == ABOVE else self.max_scroll_y - self.scroll_y
        return beyond < self.scrollable_content_region.height

    async def _show(self, part: Part) -> bool:
        """Mount what `part` holds and nothing else; False when that is what there was."""
        async with self._mounting:
            return await self._mount_part(part)

    async def _mount_part(self, part: Part) -> bool:
        entries = self.conversation.entries[part.first : part.end]
        places = {id(entry): place for place, entry in enumerate(entries)}
        stale = [w for w in self._messages() if id(w.entry) not in places]
        kept = [w for w in self._messages() if id(w.entry) in places]
        mounted = {id(w.entry) for w in kept}
        new = [place for place, entry in enumerate(entries) if id(entry) not in mounted]
        first = places[id(kept[0].entry)] if kept else 0
        # A card stays behind the message it came after: what is new at the end comes behind it.
        behind = kept[-1] if kept and self._part.hidden(BELOW) else None
        end = {"after": behind} if behind is not None else {"before": self._row(BELOW)}
        with self.app.batch_update():
            await self._talk.remove_children(stale)
            await self._talk.mount_all(
                [self._widget(entries[p]) for p in new if p < first], after=0
            )
            await self._talk.mount_all([self._widget(entries[p]) for p in new if p >= first], **end)
        self._part = part
        for side in (ABOVE, BELOW):
            self._row(side).show(part.hidden(side))
        return bool(stale or new)

    def _row(self, side: int) -> HiddenRow:
        return next(row for row in self._talk.query_children(HiddenRow) if row.side == side)

    def _messages(self) -> list[MessageWidget]:
        return [w for w in self._talk.children if isinstance(w, MessageWidget)]

    def _widget(self, entry: Entry) -> Widget:
        if entry.role == "user":
            return UserMessage(entry)
        return Answer(entry)


def _is_row(widget: Widget) -> bool:
    return isinstance(widget, HiddenRow)
