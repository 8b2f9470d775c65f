"""What of a message is copied: its Markdown as it is, its text without marks, one code block."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from app.text import printable
from app.tui.conversation import Entry
from app.tui.widgets.safe_markdown import parser

_CODE = re.compile(r"^(?:\s*(?:```|~~~)| {4}|\t)", re.MULTILINE)
_LISTS = {f"{kind}_list_{end}" for kind in ("bullet", "ordered") for end in ("open", "close")}
_HANGING = "  "
"""Before what belongs to a list's item."""


@dataclass(frozen=True)
class CodeBlock:
    """A code block's text, and the language that is written at its fence ("" for none)."""

    language: str
    text: str


@dataclass(frozen=True)
class Piece:
    """What is copied, and its name in a sentence."""

    name: str
    text: str


class Copies:
    """Takes pieces of messages; of one message's code blocks, the next one each time."""

    def __init__(self) -> None:
        self._entry: Entry | None = None
        self._block = -1

    def take(self, entry: Entry, what: str) -> Piece | None:
        """The message's "text", its "markdown", or a block of its "code"; None where it has none.
        What could steer a terminal is taken out: it would act where it is pasted."""
        said = "the answer" if entry.role == "assistant" else "your message"
        if what == "code":
            return self._code(entry)
        self._entry = None
        if what == "text" and entry.role == "assistant":
            return Piece(said, plain_text(entry.content))
        return Piece(
            f"{said} as Markdown" if what == "markdown" else said, printable(entry.content)
        )

    def _code(self, entry: Entry) -> Piece | None:
        blocks = code_blocks(entry.content)
        if not blocks:
            return None
        self._block = (self._block + 1) % len(blocks) if entry is self._entry else 0
        self._entry = entry
        block = blocks[self._block]
        kind = f" ({block.language})" if block.language else ""
        return Piece(f"code block {self._block + 1} of {len(blocks)}{kind}", block.text)


def has_code(markdown: str) -> bool:
    """Whether a look at the lines says that there are code blocks; cheap, so it may be wrong."""
    return _CODE.search(markdown) is not None


def code_blocks(markdown: str) -> list[CodeBlock]:
    """Every code block of `markdown`, in order."""
    return [
        CodeBlock((token.info.split() or [""])[0], token.content)
        for token in parser().parse(markdown)
        if token.type in ("fence", "code_block")
    ]


def plain_text(markdown: str) -> str:
    """`markdown` as it reads: no marks of emphasis or headings, links as their words; items keep a
    dash or number, table cells are parted by tabs."""
    return "\n".join(_lines(parser().parse(markdown))).strip("\n")


def _lines(tokens: Sequence[Token]) -> Iterator[str]:
    """One line of text or more for each thing that reads as one; an empty one after each block."""
    depth, mark = 0, ""
    cells: list[str] | None = None
    for token in tokens:
        if token.type in _LISTS:
            depth += token.nesting
        elif token.type == "list_item_open":
            mark = f"{token.info}. " if token.info else "- "
        elif token.type == "tr_open":
            cells = []
        elif token.type == "tr_close":
            yield "\t".join(cells or [])
            cells = None
        elif token.type == "inline" and cells is not None:
            cells.append(_inline(token))
        elif token.type in ("inline", "fence", "code_block"):
            text = _inline(token) if token.type == "inline" else token.content.rstrip("\n")
            before = _HANGING * max(0, depth - 1) + (mark or (_HANGING if depth else ""))
            yield before + text.replace("\n", "\n" + " " * len(before))
            mark = ""
        if token.level == 0 and token.nesting <= 0:
            yield ""


def _inline(token: Token) -> str:
    """The words of a paragraph; a line that Markdown would join to the one before stays one."""
    breaks = {"softbreak": "\n", "hardbreak": "\n"}
    return "".join(breaks.get(part.type, part.content) for part in token.children or ())
