"""One of a few things, in one line: left and right change it, a click goes on to the next."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget


class Choice(Widget, can_focus=True):
    """`options` are (value, words)."""

    COMPONENT_CLASSES = {"choice--label", "choice--value", "choice--focus"}
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "next", key_display="\u2190\u2192", id="choice.next"),
        Binding("left", "step(-1)", "previous", id="choice.previous", show=False),
    ]

    class Changed(Message):
        """Another option holds."""

        def __init__(self, choice: "Choice") -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> "Choice":
            """The choice."""
            return self.choice

    def __init__(
        self, label: str, options: Sequence[tuple[str, str]], *, id: str, value: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._label = label
        self._options = list(options)
        self._at = 0
        if value is not None:
            self.value = value

    @property
    def value(self) -> str:
        """The option that holds."""
        return self._options[self._at][0]

    @value.setter
    def value(self, value: str) -> None:
        """Choose without telling."""
        self._at = next(i for i, (known, _) in enumerate(self._options) if known == value)
        self.refresh()

    def action_step(self, step: int) -> None:
        """The next option, round again."""
        self._at = (self._at + step) % len(self._options)
        self.refresh()
        self.post_message(self.Changed(self))

    def on_click(self, event: events.Click) -> None:
        """Go on to the next."""
        event.stop()
        self.focus()
        self.action_step(1)

    def render(self) -> Text:
        """The label, and the words of the option between marks."""
        value = "choice--focus" if self.has_focus else "choice--value"
        words = self._options[self._at][1]
        return Text.assemble(
            (self._label, self.get_component_rich_style("choice--label")),
            (f"\u2039 {words} \u203a", self.get_component_rich_style(value)),
            no_wrap=True,
        )
