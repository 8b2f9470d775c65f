"""What is said: the user's message, and the answer that grows block by block."""

import time

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.attachment import split
from app.text import printable
from app.tui.conversation import Entry
from app.tui.copying import has_code
from app.tui.figures import number, stats_lines
from app.tui.widgets.attachments import chip
from app.tui.widgets.safe_markdown import SafeMarkdown


def _heading(who: str, entry: Entry, note: str = "") -> Text:
    at = time.strftime("%H:%M", time.localtime(entry.created))
    return Text.assemble((who, "bold"), (f"  {at}", "dim"), (f"  {note}" if note else "", "dim"))


class MessageWidget(Widget):
    """A message that can be selected; its heading then offers what the mouse can do with it."""

    class Clicked(Message):
        """It was clicked."""

        def __init__(self, widget: "MessageWidget") -> None:
            super().__init__()
            self.widget = widget

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry

    def on_click(self, event: events.Click) -> None:
        """Select it."""
        self.post_message(self.Clicked(self))

    def select(self, selected: bool) -> None:
        """Be the message that the keys act on, or no longer."""
        self.set_class(selected, "-selected")
        self.refresh_heading()

    def refresh_heading(self) -> None:
        """Who, when, and what is to be said about it; before it is laid out and when it goes there
        is no place for that."""
        heading = _heading(self._who, self.entry, self._note())
        if self.has_class("-selected"):
            for word, action in self._words():
                look = Style(underline=True, meta={"@click": f"screen.{action}"})
                heading.append("   ").append(word, look)
        for who in self.query(".who").results(Static):
            who.update(heading)

    _who = "you"

    def _words(self) -> list[tuple[str, str]]:
        """What the heading offers: a word, and the screen's action."""
        return [("copy", "copy('text')")]

    def _note(self) -> str:
        return ""


class UserMessage(MessageWidget):
    """A message as it was typed: never Markdown, never markup. Of its files only the names."""

    def compose(self) -> ComposeResult:
        yield Static(_heading("you", self.entry), classes="who", markup=False)
        text, files = split(self.entry.content)
        if text:
            yield Static(Text(printable(text)), markup=False)
        for file in files:
            yield Static(Text(f"[{printable(chip(file))}]"), classes="file", markup=False)


class Answer(MessageWidget):
    """An answer: Markdown that grows by whole blocks, its figures under it.

    `sync` shows what the entry holds by now, however often it is called: texts that arrive while
    Markdown is still laying out the last one are appended together, so a fast engine costs
    pictures, not time.
    """

    _who = "orl"

    def __init__(self, entry: Entry, *, attempt: tuple[int, int] = (1, 1)) -> None:
        super().__init__(entry)
        self._attempt = attempt

    def compose(self) -> ComposeResult:
        yield Static(classes="who", markup=False)
        yield SafeMarkdown(self.entry.content)
        yield Static(classes="figures", markup=False)

    def on_mount(self) -> None:
        """Figures of an answer from the store; none yet for a new one."""
        self._refresh_figures()

    def sync(self) -> None:
        """Show the entry's content, and its figures once it is complete."""
        self.call_later(self._sync)

    async def _sync(self) -> None:
        markdown, content = self.query_one(SafeMarkdown), self.entry.content
        shown = markdown.source
        if content.startswith(shown):
            if len(content) > len(shown):
                await markdown.append(content[len(shown) :])
        else:
            await markdown.update(content)
        self._refresh_figures()

    def _refresh_figures(self) -> None:
        entry = self.entry
        self.refresh_heading()
        line = stats_lines(entry.stats, entry.reason) if entry.reason is not None else ""
        if entry.reason is not None and not entry.content.strip():
            line = " · ".join(part for part in ("no text", line) if part)
        self.set_class(not entry.content, "-empty")
        self.set_class(entry.reason is None, "-open")
        figures = self.query_one(".figures", Static)
        figures.display = bool(line)
        figures.update(Text(line))

    def _note(self) -> str:
        """Which try this is, and what it was not shown."""
        attempt, of = self._attempt
        left_out = number(self.entry.stats or {}, "left_out")
        notes = [f"answer {attempt} of {of}"] if of > 1 else []
        if left_out:
            notes.append(f"without the {left_out:,.0f} oldest messages")
        return " · ".join(notes)

    def _words(self) -> list[tuple[str, str]]:
        words = [*super()._words(), ("Markdown", "copy('markdown')")]
        return [*words, ("code", "copy('code')")] if has_code(self.entry.content) else words
