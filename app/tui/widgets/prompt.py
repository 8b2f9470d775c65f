"""Where the user types. Enter sends, Ctrl+J breaks the line, Up at the first line looks back.

Both keys are plain control codes, so they work in tmux and over SSH; Shift+Enter and Alt+Enter
work where a terminal reports them.
"""

from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

from app.text import printable

OWN_ACTIONS = ("send", "newline")
JOINERS = "\u200c\u200d"
"""Without a shape of their own, so no keys to a text area; Persian and many emoji need them."""
LONG = 1_000
"""Characters from which on the field says how many there are: a paste shows only its end."""


class Prompt(TextArea):
    """A text field that grows with its text, with a history of what was sent."""

    BINDINGS = [
        Binding("enter", "send", "send", key_display="enter", id="chat.send"),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "newline",
            key_display="^j",
            id="chat.newline",
            tooltip="a new line",
        ),
        Binding("pageup", "scroll_talk(-1)", "Scroll up", show=False),
        Binding("pagedown", "scroll_talk(1)", "Scroll down", show=False),
    ]

    class Scroll(Message):
        """Page keys scroll the conversation."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    class Erased(Message):
        """Backspace was pressed and there is nothing to erase."""

    class AtTop(Message):
        """Up was pressed and there is no earlier prompt."""

    def __init__(self, history: Callable[[], list[str]], send: Callable[[str], object]) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Ask something",
        )
        self._history = history
        self._send = send
        self._back = 0
        self._left: dict[int, str] = {}
        """How many prompts back, and what was left there: a prompt of before may have been changed,
        and at 0 stands what is being typed."""

    async def _on_key(self, event: events.Key) -> None:
        """Send and newline are taken here, in the order in which keys came. As bindings they
        would be run by the app, which is ahead of the characters that still wait for this field:
        a quickly typed message would be sent without its end."""
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.node is self and active.binding.action in OWN_ACTIONS:
            event.stop()
            event.prevent_default()
            await self.run_action(active.binding.action)
        elif event.character is not None and event.character in JOINERS:
            event.stop()
            event.prevent_default()
            self.insert(event.character)

    def on_text_area_changed(self) -> None:
        """Say how much it is, where not all of it can be seen."""
        size, lines = len(self.text), self.document.line_count
        words = f"{lines:,} line{'s' if lines > 1 else ''}"
        self.border_subtitle = f"{size:,} characters in {words}" if size >= LONG else ""

    def put(self, text: str) -> None:
        """Hold `text` with the cursor at its end; it is what is being typed."""
        self._back, self._left = 0, {}
        self._show(text)

    def _show(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        """Send the text; who takes it puts into the field what is to be there then. At once and
        not by a message, or what is typed next would leave with it."""
        self._send(self.text)

    def action_newline(self) -> None:
        """Break the line."""
        self._replace_via_keyboard("\n", *self.selection)

    def action_scroll_talk(self, direction: int) -> None:
        """Scroll the conversation by a page."""
        self.post_message(self.Scroll(direction))

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; at the first line, the prompt before."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
        elif not self._recall(1):
            self.post_message(self.AtTop())

    def action_cursor_down(self, select: bool = False) -> None:
        """Down; at the last line of a recalled prompt, the one after it."""
        if select or not self.cursor_at_last_line or not self._recall(-1):
            super().action_cursor_down(select)

    def action_delete_left(self) -> None:
        """Erase; where there is nothing to erase, what goes along with the message."""
        if self.text:
            super().action_delete_left()
        else:
            self.post_message(self.Erased())

    def _recall(self, step: int) -> bool:
        """Move through the history; whatever is left is there again on the way back."""
        past = self._history()
        back = self._back + step
        if not 0 <= back <= len(past):
            return False
        self._left[self._back] = self.text
        self._back = back
        self._show(self._left[back] if back in self._left else past[-back])
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        """Pasted text loses what could steer the terminal; line ends become one kind. The text
        area's own handler comes after this one and inserts what is left."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        event.text = printable(text)
