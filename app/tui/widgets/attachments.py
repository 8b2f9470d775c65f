"""The files that go along with the next message, one chip each above the prompt."""

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from app.attachment import Attachment
from app.tui.figures import count, size

LONGEST_NAME = 30


class Attachments(Static):
    """Chips in a line; a click on one's cross takes it out, and so does Backspace in an empty
    prompt."""

    ALLOW_SELECT = False

    class Changed(Message):
        """A file was added or taken out."""

    def __init__(self) -> None:
        super().__init__(id="attachments", markup=False)
        self.files: list[Attachment] = []
        self.tokens_per_character: float | None = None
        """As the engine counted last; None before it did."""
        self.display = False

    def add(self, *files: Attachment) -> None:
        """Let files go along; one of the same name is replaced."""
        names = {file.name for file in files}
        self._set([file for file in self.files if file.name not in names] + list(files))

    def take_all(self) -> list[Attachment]:
        """Every file, which is then no longer here."""
        files = self.files
        self._set([])
        return files

    def drop(self, index: int = -1) -> bool:
        """Take one out, the last by default; False when there is none."""
        if not self.files:
            return False
        kept = list(self.files)
        del kept[index]
        self._set(kept)
        return True

    def action_drop(self, index: int) -> None:
        """A click on a cross."""
        if index < len(self.files):
            self.drop(index)

    def _set(self, files: list[Attachment]) -> None:
        self.files = files
        self.display = bool(files)
        line = Text(overflow="ellipsis", no_wrap=True)
        for index, file in enumerate(files):
            line.append(f" {chip(file, self.tokens_per_character)} ", "reverse")
            cross = Style(reverse=True, meta={"@click": f"drop({index})"})
            line.append("x ", cross)
            line.append("  ")
        self.update(line)
        self.post_message(self.Changed())


def chip(file: Attachment, tokens_per_character: float | None = None) -> str:
    """A file in a few words: `notes.txt 3.1 kB`, about how many tokens where that is known, and its
    encoding where that was a guess."""
    name = file.name
    if cell_len(name) > LONGEST_NAME:
        name = set_cell_size(name, LONGEST_NAME - 1) + "…"
    parts = [f"{name} {size(len(file.text.encode('utf-8', 'replace')))}"]
    if tokens_per_character is not None:
        parts.append(f"about {count(round(len(file.text) * tokens_per_character))} tokens")
    if not file.encoding.startswith("utf-8"):
        parts.append(f"read as {file.encoding}")
    return ", ".join(parts)
