"""The chat's screen before there is a chat: its keys, and the frame that is painted first.

What the chat needs (settings, store, session, Markdown) takes twice as long to import as all that
the first frame does. So `FirstFrame` is drawn from nothing but this module's imports, and the chat
takes its place as soon as it is there, with the same bars, titles and field in the same places.
"""

from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from app.tui.tabs import CHAT
from app.tui.widgets.bars import KeyBar, StatusLine, TopBar
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.too_small import TooSmall

REPLAY_HELP = "an answer step by step: the selected one, else the last"
LAYOUT_HELP = "the open block: a grid, or running text"
CHATS_HELP = "search, open, rename, delete, export, import"
LEAVE_HELP = "from the field to the conversation, where messages are selected, and back"
VIEW_HELP = "the open block: live, in slow motion, not at all"
KEEP_HELP = "keep the last answer as a verified prompt, to train on"
NEED_MESSAGES = ("stop", "again", "edit", "go_on", "replay", "keep")
"""Actions that an empty chat does not offer."""


def _key(key: str, action: str, word: str, id: str, tooltip: str) -> Binding:
    """A key of the screen; before the text field's own, so that a rebound one always works."""
    return Binding(key, action, word, id=id, tooltip=tooltip, priority=True)


class ChatFrame(Screen[None]):
    """The keys of the chat; the style sheet knows its screens by this name."""

    BINDINGS = [
        Binding("escape", "stop", "stop", id="chat.stop", tooltip="stop the answer, keep its text"),
        Binding("escape", "leave", "leave", show=False, id="chat.leave", tooltip=LEAVE_HELP),
        _key("ctrl+r", "again", "again", "chat.again", "answer once more, as a new version"),
        _key("ctrl+g", "edit", "edit", "chat.edit", "edit a message, send it as a new version"),
        _key("f8", "go_on", "continue", "chat.continue", "go on with an answer that was cut short"),
        _key("ctrl+f", "attach", "file", "chat.attach", "a text file to go along with the message"),
        _key("ctrl+t", "block_view", "view", "view.block", VIEW_HELP),
        _key("f7", "block_layout", "grid/text", "view.layout", LAYOUT_HELP),
        _key("f6", "replay", "replay", "view.replay", REPLAY_HELP),
        _key(
            "f9", "settings", "settings", "chat.settings", "this chat's decoding and system prompt"
        ),
        _key("ctrl+n", "new_chat", "new", "chat.new", "an empty chat"),
        _key("ctrl+s", "keep", "keep", "chat.keep", KEEP_HELP),
        _key("ctrl+o", "open_chat", "chats", "chat.open", CHATS_HELP),
    ]


class FirstFrame(ChatFrame):
    """An empty chat of which nothing but the frame is known. The program holds what is typed for
    the chat that comes; keys that somebody changed (`usual_keys` False) are not shown wrongly."""

    def __init__(self, *, usual_keys: bool) -> None:
        super().__init__()
        self._usual_keys = usual_keys

    def compose(self) -> ComposeResult:
        yield TopBar(CHAT)
        with Horizontal(id="middle"):
            for id, title in (("first-talk", "New chat"), ("live-panel", "Live")):
                part = Static(id=id)
                part.border_title = title
                yield part
        yield Static(id="live-line")
        yield Prompt(list, lambda text: False)
        yield StatusLine()
        yield KeyBar() if self._usual_keys else Static(id="no-keys")
        yield TooSmall()

    def on_mount(self) -> None:
        """What the chat's status line begins with."""
        self.query_one(StatusLine).show("Starting the engine", "")

    def check_action(self, action: str, parameters: tuple[Any, ...]) -> bool | None:
        """What the key bar of an empty chat offers."""
        return None if action in NEED_MESSAGES else True
