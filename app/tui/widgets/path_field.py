"""A field for a path: what would complete it shows dimmed, Tab takes it as far as it is certain."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.suggester import Suggester
from textual.widgets import Input

from app.completion import common_start, matches


class _Paths(Suggester):
    """The first path that begins as typed."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """None where there is none."""
        return next((p for p in matches(value, 20) if value and p.startswith(value)), None)


class PathField(Input):
    """Tab completes, and moves on where there is nothing to complete."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "take", key_display="enter", id="path.take"),
        Binding("tab", "complete", "complete", id="path.complete"),
    ]

    def __init__(self, *, placeholder: str, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, suggester=_Paths(), compact=True)

    def action_complete(self) -> None:
        """As far as all paths that begin as typed agree."""
        found = [path for path in matches(self.value) if path.startswith(self.value)]
        start = common_start(found)
        if not self.value or len(start) <= len(self.value):
            self.screen.focus_next()
            return
        self.value = start
        self.cursor_position = len(start)
