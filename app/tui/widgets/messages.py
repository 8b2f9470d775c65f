"""What is said: the user's message, and the answer that grows block by block."""

import time

from rich.text import Text
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from app.text import printable
from app.tui.conversation import Entry
from app.tui.figures import stats_line
from app.tui.widgets.safe_markdown import SafeMarkdown
from app.tui.widgets.words import Words

PAUSE = 0.1
"""Seconds between two appends. Each lays out the screen, which would else be all it does."""


def _heading(who: str, entry: Entry, note: str = "") -> Text:
    at = time.strftime("%H:%M", time.localtime(entry.created))
    return Text.assemble((who, "bold"), (f"  {at}", "dim"), (f"  {note}" if note else "", "dim"))


class UserMessage(Widget):
    """A message as it was typed: never Markdown, never markup."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry

    def compose(self) -> ComposeResult:
        yield Static(_heading("you", self.entry), classes="who")
        yield Static(Text(printable(self.entry.content)), markup=False)


class Answer(Widget):
    """An answer: Markdown that grows by whole blocks, its figures under it.

    `sync` shows what the entry holds by now, however often it is called: texts that arrive while
    Markdown is still laying out the last one are appended together, so a fast engine costs
    pictures, not time.
    """

    def __init__(self, entry: Entry, *, attempt: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.entry = entry
        self._attempt = attempt
        self._waiting = False
        self._not_before = 0.0

    def compose(self) -> ComposeResult:
        number, of = self._attempt
        note = f"answer {number} of {of}" if of > 1 else ""
        yield Static(_heading("orl", self.entry, note), classes="who")
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
        line = stats_line(entry.stats, entry.reason) if entry.reason is not None else ""
        if entry.reason is not None and not entry.content.strip():
            line = " · ".join(part for part in ("no text", line) if part)
        self.set_class(not entry.content, "-empty")
        self.set_class(entry.reason is None, "-open")
        figures = self.query_one(".figures", Words)
        figures.display = bool(line)
        figures.say(Text(line))
