"""Ctrl+O: the chats, newest first, with search. Typing searches, arrows choose, keys do the rest.

The field keeps the focus, also while it asks for a name or a path. What is typed is known at once
and searched for a moment later, or by the first key that needs to know the chosen chat.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Static

from app.chat_files import ChatFileError, ChatRecord
from app.completion import common_start, matches
from app.store_rows import ChatSummary
from app.store_schema import StoreError
from app.text import printable
from app.tui import chat_rows, chat_transfer
from app.tui.background import in_background
from app.tui.screens.modal import Modal
from app.tui.session import ChatSession
from app.tui.widgets.bars import KeyBar
from app.tui.widgets.chat_list import ChatList
from app.tui.widgets.search_field import SearchField
from app.words import Search

ALL = 100_000
FOUND = 200
"""Chats that a search shows: each is read for the place to show."""
PAUSE = 0.05
"""Seconds without a key before a search begins; a key that needs its chats begins it at once."""
SEARCH_HINT = "Search titles and messages"


@dataclass(frozen=True)
class Asking:
    """What the field asks for in place of a search. `take` does what it is for and gives the words
    about it, or raises."""

    title: str
    hint: str
    take: Callable[[str], str]
    is_path: bool = False
    is_new: bool = False
    """A file that will be written."""


class ChatsScreen(Modal[None]):
    """Open, rename, delete, export and import chats; `open` shows one in the window."""

    BINDINGS = [Binding("escape", "back", "back", id="chats.back")]

    def __init__(self, session: ChatSession, open: Callable[[ChatSummary], None]) -> None:
        super().__init__()
        self._session = session
        self._open = open
        self._search = Search("")
        self._is_stale = False
        self._asking: Asking | None = None
        self._deleted: list[ChatSummary] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="window") as window:
            window.border_title = "Chats"
            yield SearchField(placeholder=SEARCH_HINT, id="search")
            yield ChatList()
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """All chats, the newest first; what is typed is known the moment it is typed."""
        self._field.focus()
        self.watch(self._field, "value", self._typed, init=False)
        self.call_after_refresh(self._look)
        self._is_stale = True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What can be done now."""
        if action in ("open", "delete", "rename", "export", "import", "move", "page"):
            return self._asking is None
        if action == "take":
            return self._asking is not None
        if action == "complete":
            return self._asking is not None and self._asking.is_path
        if action == "format":
            return self._asking is not None and self._asking.is_new
        return bool(self._deleted and self._asking is None) if action == "undo" else True

    # --- the list -----------------------------------------------------------------------------

    def on_chat_list_opened(self, event: ChatList.Opened) -> None:
        """A click opens."""
        if self._asking is None:
            self._show(event.chat)

    def action_open(self) -> None:
        """Show the chosen chat, at what was found in it."""
        if (chat := self._chosen) is not None:
            self._show(chat)

    def _show(self, chat: ChatSummary) -> None:
        self._open(chat)
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Arrows move in the list while the field keeps the focus."""
        self._look()
        self._list.move(step)

    def action_page(self, step: int) -> None:
        """As much as is seen."""
        self.action_move(step * self._list.page)

    def action_back(self) -> None:
        """Leave what is asked, or the list."""
        if self._asking is None:
            self.dismiss(None)
        else:
            self._say("")
            self._stop_asking()

    def action_delete(self) -> None:
        """At once, since it can be undone."""
        chat = self._chosen
        if chat is not None and self._try(lambda: self._session.delete(chat.id)):
            self._refresh(self._list.index)
            self._say(f"Deleted “{chat_rows.title(chat)}”; Ctrl+Z brings it back for an hour.")

    def action_undo(self) -> None:
        """Bring back what was deleted last; once more, what was deleted before it."""
        chat = self._deleted[0]
        back: list[bool] = []
        if self._try(lambda: back.append(self._session.store.restore_chat(chat.id))):
            self._refresh(self._list.index)
            self._go_to(chat.id)
            what = "is back" if back == [True] else "was removed for good"
            self._say(f"“{chat_rows.title(chat)}” {what}.")

    # --- what asks for a line ------------------------------------------------------------------

    def action_rename(self) -> None:
        """The field becomes the chat's title."""
        if (chat := self._chosen) is not None:
            hint = "New name, then Enter. Esc leaves it as it was."
            take = lambda name: self._rename(chat, name)
            self._ask(chat.title and chat_rows.title(chat), Asking("Rename", hint, take))

    def _rename(self, chat: ChatSummary, name: str) -> str:
        if name.strip():
            self._session.rename(chat.id, name.strip())
        return ""

    def action_export(self) -> None:
        """The field becomes the path of a new file."""
        if (chat := self._chosen) is None:
            return
        store, name = self._session.store, chat_transfer.suggested(chat)
        hint = "A name in .md is for reading; one in .json holds everything and can be imported."
        take = lambda path: chat_transfer.export(store, chat, path)
        self._ask(name, Asking("Export to", hint, take, is_path=True, is_new=True))

    def action_format(self) -> None:
        """The other ending."""
        self._put(chat_transfer.other_ending(self._field.value))

    def action_complete(self) -> None:
        """As far as all paths that begin as typed agree."""
        typed = self._field.value
        self._put(max(typed, common_start(matches(typed)), key=len))

    def action_import(self) -> None:
        """The field becomes the path of an exported file."""
        hint = "The path of a .json file that was exported, then Enter."
        self._ask("", Asking("Import from", hint, self._import, is_path=True))

    def _import(self, path: str) -> str:
        chats = chat_transfer.read(path)
        # The program's, not the screen's: it goes on when the list is left.
        in_background(self.app, self._bring_in, chats, group="import", exclusive=False)
        return f"Importing {len(chats):,} chats"

    async def _bring_in(self, chats: Sequence[ChatRecord]) -> None:
        new: list[int] = []
        try:
            new, words = await chat_transfer.bring_in(self._session.store, chats, self._say)
        except StoreError as error:
            words = str(error)
        if not self.is_attached:
            self.app.notify(words, markup=False)
            return
        if self._asking is None:
            if new:
                self._search = Search("")
                self._put("")
            self._refresh(0 if new else self._list.index)
            self._go_to(*new)
        self._say(words)

    def _ask(self, value: str, asking: Asking) -> None:
        self._asking = asking
        self._say(asking.hint)
        self._field.placeholder = ""
        self._title(asking.title)
        self._put(value)

    def action_take(self) -> None:
        """Do what was asked for; what cannot be done is said, and the field stays."""
        asking = self._asking
        assert asking is not None
        words: list[str] = []
        if self._try(lambda: words.append(asking.take(self._field.value))):
            self._stop_asking()
            self._refresh(self._list.index)
            self._say(words[0])

    def _stop_asking(self) -> None:
        self._field.placeholder = SEARCH_HINT
        self._title("Chats")
        self._put(self._search.text)
        self._asking = None
        self.refresh_bindings()

    def _title(self, title: str) -> None:
        self.query_one(".window").border_title = title
        self.refresh_bindings()

    # --- what is shown -------------------------------------------------------------------------

    @property
    def _field(self) -> SearchField:
        return self.query_one(SearchField)

    @property
    def _list(self) -> ChatList:
        return self.query_one(ChatList)

    @property
    def _chosen(self) -> ChatSummary | None:
        """The chosen chat of those that what is typed by now finds."""
        self._look()
        return self._list.chosen

    def _put(self, text: str) -> None:
        self._field.value = text
        self._field.cursor_position = len(text)

    def _typed(self, text: str) -> None:
        if self._asking is None and text != self._search.text:
            self._search, self._is_stale = Search(text), True
            self.set_timer(PAUSE, self._look)

    def _look(self) -> None:
        """Search for what is typed by now, unless that was done."""
        if self._is_stale:
            self._refresh(0)
            none = "No chat holds that." if self._search.parts else "No chats yet."
            many = f"The newest {FOUND} are shown; more words find fewer."
            count = len(self._list.chats)
            full = self._search.parts and count == FOUND
            self._say(none if not count else many if full else "")

    def _refresh(self, index: int) -> None:
        store, search = self._session.store, self._search
        self._is_stale = False
        chats: list[ChatSummary] = []
        try:
            chats = store.chats(search.text, FOUND if search.parts else ALL)
            self._deleted = store.deleted_chats()
        except StoreError as error:
            self._say(str(error))
        self._list.show(chats, search, index)
        self.refresh_bindings()

    def _go_to(self, *ids: int) -> None:
        """Choose the first chat of the list that is one of these."""
        places = (place for place, chat in enumerate(self._list.chats) if chat.id in ids)
        self._list.move(next(places, self._list.index) - self._list.index)

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except (StoreError, ChatFileError) as error:
            self._say(str(error))
            return False
        return True

    def _say(self, text: str) -> None:
        for note in self.query("#note").results(Static):  # none when the list was left
            note.update(Text(printable(text)))
