"""The rows of the list of chats, drawn line by line: two thousand of them cost what is seen."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from app.store_rows import ChatSummary
from app.tui import chat_rows
from app.words import Search


class ChatList(ScrollView):
    """Chats of which one is chosen. It never has the focus: the field above it moves in it."""

    COMPONENT_CLASSES = {"chats--chosen", "chats--dim", "chats--mark"}
    ALLOW_SELECT = False
    can_focus = False

    class Opened(Message):
        """A chat was clicked."""

        def __init__(self, chat: ChatSummary) -> None:
            super().__init__()
            self.chat = chat

    def __init__(self) -> None:
        super().__init__(id="chats")
        self._chats: Sequence[ChatSummary] = ()
        self._search = Search("")
        self._index = 0

    def show(self, chats: Sequence[ChatSummary], search: Search, index: int) -> None:
        """Other chats, found by `search`; the one at `index`, or the last one, is chosen."""
        self._chats, self._search = chats, search
        self.virtual_size = Size(0, len(chats) * self._height)
        self._choose(index)

    @property
    def chats(self) -> Sequence[ChatSummary]:
        """What is listed."""
        return self._chats

    @property
    def index(self) -> int:
        """Where the chosen chat stands."""
        return self._index

    @property
    def chosen(self) -> ChatSummary | None:
        """The chosen chat, None in an empty list."""
        return self._chats[self._index] if self._chats else None

    def move(self, step: int) -> None:
        """Choose another chat, `step` rows below."""
        self._choose(self._index + step)

    @property
    def page(self) -> int:
        """How many chats are seen at once."""
        return max(1, self.scrollable_content_region.height // self._height)

    def _choose(self, index: int) -> None:
        self._index = max(0, min(index, len(self._chats) - 1))
        self._into_view()
        self.refresh()

    def _into_view(self) -> None:
        region = Region(0, self._index * self._height, 1, self._height)
        # Also while the scrollbar is not there yet: keys may come right after the chats.
        self.scroll_to_region(region, animate=False, immediate=True, x_axis=False, force=True)

    def on_resize(self) -> None:
        """The chosen chat stays in view."""
        self._into_view()

    @property
    def _height(self) -> int:
        """Lines of a row."""
        return 2 if self._search.parts else 1

    def on_click(self, event: events.Click) -> None:
        """Choose the chat under the mouse, and open it."""
        event.stop()
        place = event.get_content_offset(self)
        index = None if place is None else (place.y + self.scroll_offset.y) // self._height
        if index is not None and index < len(self._chats):
            self._choose(index)
            self.post_message(self.Opened(self._chats[index]))

    def render_line(self, y: int) -> Strip:
        """One line of a row."""
        width = self.scrollable_content_region.width
        index, line = divmod(y + self.scroll_offset.y, self._height)
        if index >= len(self._chats):
            return Strip.blank(width, self.rich_style)
        chosen = index == self._index
        look = self.get_component_rich_style("chats--chosen") if chosen else self.rich_style
        margin = chat_rows.CHOSEN if chosen and line == 0 else chat_rows.NOT_CHOSEN
        row = self._row(self._chats[index], line, max(0, width - len(margin)))
        segments = [Segment(margin), *row.render(self.app.console)]
        return Strip(segments).adjust_cell_length(width).apply_style(look)

    def _row(self, chat: ChatSummary, line: int, width: int) -> Text:
        dim, mark = self._ink("chats--dim"), self._ink("chats--mark")
        if not self._search.parts:
            return chat_rows.overview(chat, width, dim)
        if line == 0:
            return chat_rows.heading(chat, self._search, width, dim, mark)
        return chat_rows.found(chat, width, dim, mark)

    def _ink(self, name: str) -> Style:
        """A look without its background, which is the row's."""
        style = self.get_component_rich_style(name)
        return Style(color=style.color, bold=style.bold, underline=style.underline)
