"""The field above the list of chats: what is searched for, and what is asked for in its place."""

from textual import events
from textual.binding import Binding
from textual.widgets import Input

from app.text import printable


class SearchField(Input):
    """Takes the keys of its screen itself, in the order they came.

    Left to Textual, a key that acts on the chosen chat can overtake the letters before it, or the
    search that they make, and then acts on another chat.
    """

    BINDINGS = [
        Binding("enter", "screen.open", "open", key_display="enter", id="chats.open"),
        Binding("enter", "screen.take", "ok", key_display="enter", id="chats.take"),
        Binding("ctrl+t", "screen.format", "md/json", id="chats.format", tooltip=".md or .json"),
        Binding("tab", "screen.complete", "complete", id="chats.complete"),
        Binding("ctrl+d", "screen.delete", "delete", id="chats.delete"),
        Binding("ctrl+z", "screen.undo", "undo", id="chats.undo", tooltip="undo the deletion"),
        Binding("f2", "screen.rename", "rename", id="chats.rename"),
        Binding("ctrl+s", "screen.export", "export", id="chats.export", tooltip="save as a file"),
        Binding("ctrl+o", "screen.import", "import", id="chats.import", tooltip="read a file"),
        Binding("down", "screen.move(1)", "Next", show=False),
        Binding("up", "screen.move(-1)", "Previous", show=False),
        Binding("pagedown", "screen.page(1)", "A page down", show=False),
        Binding("pageup", "screen.page(-1)", "A page up", show=False),
    ]

    async def _on_key(self, event: events.Key) -> None:
        if self.app.screen is not self.screen:
            # A key before this one closed the list: this one is for what is below.
            event.stop()
            event.prevent_default()
            self.app.post_message(events.Key(event.key, event.character))
            return
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.node in (self, self.screen):
            event.stop()
            event.prevent_default()
            await self.app.run_action(active.binding.action, active.node)

    def _on_paste(self, event: events.Paste) -> None:
        """Without what could steer the terminal; the field's own handler inserts what is left."""
        event.text = printable(event.text)
