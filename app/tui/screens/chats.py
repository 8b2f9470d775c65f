"""Ctrl+O: the chats, newest first, with search. Typing searches, arrows choose."""

import time

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.store import ChatSummary
from app.store_schema import StoreError
from app.text import printable
from app.tui.session import ChatSession
from app.tui.widgets.bars import KeyBar


class SearchField(Input):
    """The field that keeps the focus; Enter and Ctrl+D are the list's."""

    BINDINGS = [
        Binding("enter", "submit", "open", key_display="enter", id="chats.open"),
        Binding("ctrl+d", "screen.delete", "delete", id="chats.delete"),
    ]


class ChatsScreen(ModalScreen[ChatSummary | None]):
    """Open, rename or delete a chat; deleting asks by wanting the key twice."""

    BINDINGS = [
        Binding("f2", "rename", "rename", id="chats.rename"),
        Binding("escape", "back", "back", id="chats.back"),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "Previous", show=False),
    ]

    def __init__(self, session: ChatSession) -> None:
        super().__init__()
        self._session = session
        self._chats: list[ChatSummary] = []
        self._renaming: ChatSummary | None = None
        self._doomed: int | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="window") as window:
            window.border_title = "Chats"
            yield SearchField(placeholder="Search titles and messages", id="search")
            yield OptionList(id="chats", markup=False, compact=True)
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """The newest chats."""
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self.call_after_refresh(self._search, "")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as you type."""
        if self._renaming is None:
            self._search(event.value)

    def on_resize(self) -> None:
        """Rows fit the window."""
        if self._chats:
            self._fill(self.query_one(OptionList).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click opens."""
        event.stop()
        self._choose()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter, with all that was typed before it."""
        self._choose()

    def action_move(self, step: int) -> None:
        """Arrows move in the list while the field keeps the focus."""
        self._say("")
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def action_back(self) -> None:
        """Leave renaming, or the list."""
        if self._renaming is not None:
            self._end_renaming()
        else:
            self.dismiss(None)

    def _choose(self) -> None:
        """Open the chat, or take its new name."""
        if self._renaming is not None:
            title = self.query_one(Input).value.strip()
            chat = self._renaming
            if title and self._try(lambda: self._session.rename(chat.id, title)):
                self._end_renaming()
        elif (chosen := self._chosen) is not None:
            self.dismiss(chosen)

    def action_rename(self) -> None:
        """The field becomes the chat's title."""
        chat = self._chosen
        if chat is None or self._renaming is not None:
            return
        self._renaming = chat
        field = self.query_one(Input)
        field.value = chat.title
        field.cursor_position = len(chat.title)
        self._say("New name, then Enter. Esc leaves it as it was.")

    def action_delete(self) -> None:
        """Twice, for the same chat."""
        chat = self._chosen
        if chat is None or self._renaming is not None:
            return
        if self._doomed != chat.id:
            self._say(f"Once more deletes \u201c{printable(chat.title)}\u201d for good.", chat.id)
        elif self._try(lambda: self._session.delete(chat.id)):
            self._search(self.query_one(Input).value)

    @property
    def _chosen(self) -> ChatSummary | None:
        index = self.query_one(OptionList).highlighted
        return self._chats[index] if index is not None and index < len(self._chats) else None

    def _end_renaming(self) -> None:
        self._renaming = None
        self.query_one(Input).value = ""
        self._search("")

    def _try(self, act: "object") -> bool:
        try:
            assert callable(act)
            act()
        except StoreError as error:
            self._say(str(error))
            return False
        return True

    def _search(self, text: str) -> None:
        try:
            self._chats = self._session.store.chats(text)
        except StoreError as error:
            self._chats = []
            self._say(str(error))
            return
        self._fill(0)
        self._say("" if self._chats else "No chat holds that." if text else "No chats yet.")

    def _fill(self, highlighted: int | None) -> None:
        options = self.query_one(OptionList)
        width = max(20, options.scrollable_content_region.width - 2)
        options.clear_options()
        options.add_options(Option(_row(chat, width)) for chat in self._chats)
        options.highlighted = highlighted if self._chats else None

    def _say(self, text: str, doomed: int | None = None) -> None:
        self._doomed = doomed
        self.query_one("#note", Static).update(Text(text))


def _row(chat: ChatSummary, width: int) -> Text:
    """Title, the last message's start, and when, in columns."""
    when = _when(chat.updated)
    title_width = min(40, max(16, width // 2))
    title = _cut(printable(chat.title) or "Untitled", title_width)
    preview = printable(chat.preview)
    room = width - title_width - cell_len(when) - 4
    row = Text(no_wrap=True)
    row.append(title)
    row.append(f"  {_cut(preview, max(0, room))}  ", "dim")
    row.append(when, "dim")
    return row


def _cut(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    if cell_len(text) > width > 0:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def _when(stamp: float) -> str:
    """`14:21` today, `3 Nov` this year, else the year."""
    then, now = time.localtime(stamp), time.localtime()
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then).rjust(6)
    if then.tm_year == now.tm_year:
        return f"{then.tm_mday:2d} {time.strftime('%b', then)}"
    return str(then.tm_year).rjust(6)
