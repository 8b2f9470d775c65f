"""Keep an answer as a verified prompt: the question, and how to tell a right answer to it.

The verifier is guessed from the answer and can be changed; whether it passes on that answer shows
while it is edited.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from app.keeping import KINDS, PARTS, Guess, KeepingError, guess, keep, verdict
from app.paths import paths
from app.text import printable
from app.tui.screens.modal import Modal
from app.tui.widgets.bars import KeyBar
from app.tui.widgets.choice import Choice

WORDS = {
    "number": "number: the last number is this one",
    "exact": "exact: these very words",
    "contains": "contains: these words occur",
    "choice": "choice: this letter is chosen",
    "json": "json: this JSON",
}
WHERE = {
    "all": "the whole answer",
    "bold": "the last bold part",
    "last line": "the last line",
    "boxed": "the last \\boxed{}",
    "code": "the last code block",
}


class ReferenceField(Input):
    """What a right answer holds; Enter keeps the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.keep", "keep", key_display="enter", id="keep.enter"),
    ]


class KeepScreen(Modal[str | None]):
    """Dismissed with a sentence about what was kept, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "keep", "keep", id="keep.keep", priority=True),
        Binding("escape", "dismiss", "back", id="keep.back"),
        Binding("up", "app.focus_previous", "Previous", show=False),
        Binding("down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, messages: Sequence[dict[str, str]], answer: str) -> None:
        super().__init__()
        self._messages, self._answer = list(messages), answer
        self._guess = guess(self._messages[-1]["content"], answer)

    def compose(self) -> ComposeResult:
        first = self._guess
        with Vertical(classes="window -small") as window:
            window.border_title = "Keep as a verified prompt"
            yield Static(_line(self._messages[-1]["content"]), id="keep-question", markup=False)
            yield Choice(
                "right when  ", [(kind, WORDS[kind]) for kind in KINDS], id="keep-kind",
                value=first.kind,
            )  # fmt: skip
            yield Choice(
                "look at     ", [(part, WHERE[part]) for part in PARTS], id="keep-part",
                value=first.take,
            )  # fmt: skip
            yield ReferenceField(
                printable(first.answer), id="keep-answer", compact=True, select_on_focus=False
            )
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """The reference is what is most likely to be changed."""
        self.query_one(ReferenceField).focus()
        self._check()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        """Another verifier."""
        event.stop()
        self._check()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another reference."""
        event.stop()
        self._check()

    @property
    def how(self) -> Guess:
        """The verifier as it is now."""
        kind, part = (self.query_one(f"#keep-{id}", Choice).value for id in ("kind", "part"))
        return Guess(kind, part, self.query_one(ReferenceField).value)

    def action_keep(self) -> None:
        """Append it to the personal set."""
        try:
            count = keep(paths().kept, self._messages, self.how)
        except KeepingError as error:
            self._say(str(error), good=False)
            return
        self.dismiss(f"Kept: your set holds {count:,} prompt{'s' * (count != 1)}. F4 trains on it.")

    def _check(self) -> None:
        passed, reason = verdict(self.how, self._answer)
        words = "\u2713 this answer passes" if passed else f"\u2717 this answer fails: {reason}"
        self._say(words, good=passed)

    def _say(self, words: str, *, good: bool) -> None:
        note = self.query_one("#note", Static)
        note.set_class(not good, "-problem")
        note.update(Text(printable(words)))


def _line(text: str) -> Text:
    return Text(printable(" ".join(text.split())), overflow="ellipsis", no_wrap=True)
