"""What is said: the user's message, and the answer that grows block by block."""

import time

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
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
from app.tui.widgets.words import Words

PAUSE = 0.1
"""Seconds between two appends. Each lays out the screen, which would else be all it does."""


def _heading(who: str, entry: Entry, note: str = "") -> Text:
    at = time.strftime("%H:%M", time.localtime(entry.created))
    return Text.assemble((who, "bold"), (f"  {at}", "dim"), (f"  {note}" if note else "", "dim"))


def _version(entry: Entry) -> str:
    """`version 2/3`, where there are several."""
    return f"version {entry.version}/{entry.versions}" if entry.versions > 1 else ""


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
        self._measured: tuple[tuple[int, Size, int], int] | None = None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As Textual has it, and kept until something in the message wants a layout: of all that
        is mounted only one message grows, and the others need not be measured each time."""
        key = (self._layout_updates, viewport, width)
        if self._measured is None or self._measured[0] != key:
            self._measured = key, super().get_content_height(container, viewport, width)
        return self._measured[1]

    def on_click(self, event: events.Click) -> None:
        """Select it."""
        self.post_message(self.Clicked(self))

    def mark_found(self) -> None:
        """Be what a search found, as long as it is mounted."""
        self.add_class("-found")
        self.border_title = "found"

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
        for who in self.query(".who").results(Words):
            who.say(heading)

    _who = "you"

    def _words(self) -> list[tuple[str, str]]:
        """What the heading offers: a word, and the screen's action."""
        words = [("copy", "copy('text')"), ("edit", "edit"), ("again", "again")]
        leafing = [("older", "leaf(-1)"), ("newer", "leaf(1)")]
        return [*(leafing if self.entry.versions > 1 else []), *words]

    def _note(self) -> str:
        """What is to be said of the message beside who and when."""
        return _version(self.entry)


class UserMessage(MessageWidget):
    """A message as it was typed: never Markdown, never markup. Of its files only the names."""

    def compose(self) -> ComposeResult:
        yield Words(classes="who")
        text, files = split(self.entry.content)
        if text:
            yield Static(Text(printable(text)), markup=False)
        for file in files:
            yield Static(Text(f"[{printable(chip(file))}]"), classes="file", markup=False)

    def on_mount(self) -> None:
        """Who and when."""
        self.refresh_heading()


class Answer(MessageWidget):
    """An answer: Markdown that grows by whole blocks, its figures under it.

    `sync` shows what the entry holds by now, however often it is called: texts that arrive while
    Markdown is still laying out the last one are appended together, so a fast engine costs
    pictures, not time.
    """

    _who = "orl"
    _waiting = False
    _not_before = 0.0

    def compose(self) -> ComposeResult:
        yield Words(classes="who")
        yield SafeMarkdown(self.entry.content)
        yield Words(classes="figures")

    def on_mount(self) -> None:
        """Figures of an answer from the store; none yet for a new one."""
        self._refresh_figures()

    def sync(self) -> None:
        """Show the entry's content, and its figures once it is complete; soon, not at once."""
        if self._waiting:
            return
        self._waiting = True
        wait = self._not_before - time.monotonic()
        if wait > 0:
            self.set_timer(wait, self._sync)
        else:
            self.call_later(self._sync)

    async def _sync(self) -> None:
        self._waiting, self._not_before = False, time.monotonic() + PAUSE
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
        line = self._figures()
        self.set_class(not entry.content, "-empty")
        self.set_class(entry.reason is None, "-open")
        for figures in self.query(".figures").results(Words):  # none when it goes
            figures.display = bool(line)
            figures.say(Text(line))

    def _note(self) -> str:
        left_out = number(self.entry.stats or {}, "left_out")
        return f"without the {left_out:,.0f} oldest messages" if left_out else ""

    def _figures(self) -> str:
        """Which version this is, its figures, and why there is no text."""
        entry = self.entry
        if entry.reason is None:
            return ""
        lines = stats_lines(entry.stats, entry.reason)
        first = [_version(entry), "" if entry.content.strip() else "no text", lines]
        return " · ".join(part for part in first if part)

    def _words(self) -> list[tuple[str, str]]:
        words = [word for word in super()._words() if word[0] != "edit"]
        words.append(("Markdown", "copy('markdown')"))
        if has_code(self.entry.content):
            words.append(("code", "copy('code')"))
        recorded = "trace" in (self.entry.stats or {})
        return [*words, ("replay", "replay")] if recorded else words
