"""A screen over the others that is left once, however often it is told to go."""

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Modal(ModalScreen[ScreenResultType]):
    """For screens that a message of one of their parts closes, such as a field's or a button's."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Go back, with the result. Only from here: Textual takes off whatever is on top, and a
        second press that was still under way would take the chat."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
