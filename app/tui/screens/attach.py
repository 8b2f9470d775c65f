"""Ctrl+F: name a text file that goes along with the next message. Tab completes its path."""

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.attachment import Attachment, AttachmentError, read
from app.completion import common_start, expanded, matches
from app.text import printable
from app.tui.screens.modal import Modal
from app.tui.widgets.bars import KeyBar


class PathField(Input):
    """Where the path is typed; the keys of the list are the screen's."""

    BINDINGS = [
        Binding("enter", "screen.take", "attach", key_display="enter", id="attach.take"),
        Binding("tab", "screen.complete", "complete", id="attach.complete"),
    ]


class AttachScreen(Modal[Attachment | None]):
    """A field and the paths that begin as it does."""

    BINDINGS = [
        Binding("escape", "dismiss", "back", id="attach.back"),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "Previous", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._paths: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="window") as window:
            window.border_title = "Attach a text file"
            yield PathField(placeholder="Path of the file", id="path")
            yield OptionList(id="paths", markup=False, compact=True)
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """What is in the folder the program was started in."""
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self._list("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """The paths that begin as typed."""
        self._list(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click takes."""
        event.stop()
        self.action_take()

    def action_move(self, step: int) -> None:
        """Arrows mark a path while the field keeps the focus."""
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def action_complete(self) -> None:
        """As far as it is certain; once more, or with a marked path, that one."""
        marked, field = self._marked, self.query_one(Input)
        start = common_start(self._paths)
        longer = len(start) > len(field.value)
        self._type(marked or (start if longer else self._paths[0] if self._paths else field.value))

    @property
    def _marked(self) -> str | None:
        index = self.query_one(OptionList).highlighted
        return self._paths[index] if index is not None and index < len(self._paths) else None

    def _type(self, text: str) -> None:
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    def action_take(self) -> None:
        """Take what is marked in the list, else what is typed."""
        path = self._marked or self.query_one(Input).value
        if path.endswith("/"):
            self._type(path)
            return
        if not path.strip():
            self._say("Type the path of a file; Tab completes it.")
            return
        try:
            self.dismiss(read(expanded(path)))
        except AttachmentError as error:
            self._say(str(error))

    def _list(self, typed: str) -> None:
        self._paths = matches(typed)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(Text(printable(path), no_wrap=True)) for path in self._paths)
        options.highlighted = None
        self._say("" if self._paths else "Nothing here begins like this.")

    def _say(self, text: str) -> None:
        self.query_one("#note", Static).update(Text(printable(text)))
