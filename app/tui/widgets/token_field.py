"""Where a Hugging Face token is typed or pasted: dots on the screen, a `Secret` out.

The text stays in the field only until it is taken or the field is closed; it cannot be copied out
of it.
"""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from app.hub.secret import Secret

SHORTEST = 8
"""Characters below which it is a slip of the keyboard; the hub's own tokens have 37."""


class TokenField(Input):
    """Hidden until it is opened; Enter is `Entered`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "use it", key_display="enter", id="token.use"),
    ]

    class Entered(Message):
        """Enter was pressed; `take` gives what stands in the field."""

    def __init__(self) -> None:
        super().__init__(placeholder="hf_...", password=True)

    def open(self) -> None:
        """Show it, empty, and type into it."""
        self.value = ""
        self.add_class("-open")
        self.focus()

    def close(self) -> None:
        """Hide it; what stood in it is gone."""
        self.value = ""
        self.remove_class("-open")

    def take(self) -> Secret | None:
        """What was typed, None when that can be no token. The field is empty afterwards."""
        found = Secret(self.value.strip()) if len(self.value.strip()) >= SHORTEST else None
        self.value = ""
        return found

    async def action_submit(self) -> None:
        """Without the text, which a message would carry through the program."""
        self.post_message(self.Entered())

    def action_copy(self) -> None:
        """A secret does not go to the clipboard."""

    def action_cut(self) -> None:
        """As `action_copy`."""
