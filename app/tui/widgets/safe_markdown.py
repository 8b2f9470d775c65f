"""Markdown of a model: nothing in it steers the terminal, opens a page or reads a file.

The parser's tokens are cleaned after parsing, which is the one place that also sees what an entity
(`&#27;`) became. Links are never opened by a click: the address is shown, and copied.
"""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.await_complete import AwaitComplete
from textual.widgets import Markdown

from app.text import printable

_BLANK = re.compile(r"\n[ \t]*\n")
_UNSURE = re.compile(r"\n[ \t]*(?:[-*+_#|:\d.) \t]+|`{3}[^\n]*)\Z")
"""A last line that opens a block, and with one more character may turn out to go on with the one
above: `*` is an item of a list, `**` is not."""


def parser() -> MarkdownIt:
    """The parser that Textual uses, without raw HTML, and with clean texts."""
    markdown = MarkdownIt("gfm-like", {"html": False})
    markdown.core.ruler.push("printable", _clean)
    return markdown


def _clean(state: StateCore) -> None:
    _clean_tokens(state.tokens)


def _clean_tokens(tokens: Sequence[Token]) -> None:
    for token in tokens:
        token.content = printable(token.content)
        token.info = printable(token.info)
        for name, value in token.attrs.items():
            if isinstance(value, str):
                token.attrs[name] = printable(value)
        _clean_tokens(token.children or ())


def _block_lines(text: str) -> set[int]:
    """The lines where outermost blocks begin."""
    return {token.map[0] for token in parser().parse(text) if token.level == 0 and token.map}


class SafeMarkdown(Markdown):
    """A model's Markdown, streamed by `append`."""

    def __init__(self, markdown: str = "") -> None:
        super().__init__(markdown, parser_factory=parser, open_links=False)

    def append(self, markdown: str) -> AwaitComplete:
        """Add text. Textual takes blocks above the last one as settled: where the new text shows
        that they were not, everything is drawn again."""
        since_blank = _BLANK.split(self.source)[-1]
        if _UNSURE.search(since_blank) and not (
            _block_lines(since_blank) <= _block_lines(since_blank + markdown)
        ):
            return self.update(self.source + markdown)
        return super().append(markdown)

    def update(self, markdown: str) -> AwaitComplete:
        """Draw this text instead. By appending it: after its own update Textual takes the last line
        for the last block, and the next `append` would replace a whole list by an item."""

        async def draw() -> None:
            await Markdown.update(self, "")
            await Markdown.append(self, markdown)

        return AwaitComplete(draw())

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Show where a link leads."""
        event.stop()
        self.app.copy_to_clipboard(event.href)
        self.notify(event.href, title="Link copied", markup=False)
