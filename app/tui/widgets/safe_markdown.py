"""Markdown of a model: nothing in it steers the terminal, opens a page or reads a file.

The parser's tokens are cleaned after parsing, which is the one place that also sees what an entity
(`&#27;`) became. Links are never opened by a click: the address is shown, and copied.
"""

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.widgets import Markdown

from app.text import printable


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


class SafeMarkdown(Markdown):
    """A model's Markdown, streamed by `append`."""

    def __init__(self, markdown: str = "") -> None:
        super().__init__(markdown, parser_factory=parser, open_links=False)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Show where a link leads."""
        event.stop()
        self.app.copy_to_clipboard(event.href)
        self.notify(event.href, title="Link copied", markup=False)
