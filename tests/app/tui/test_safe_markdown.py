"""Nothing that a model writes reaches the terminal as a command, whatever way it is dressed up."""

from collections.abc import Iterator

import pytest
from markdown_it.token import Token

from app.tui.widgets.safe_markdown import parser

ATTACKS = (
    "\x1b[31mred\x1b[0m",
    "&#27;[31mred &#x1b;]0;title&#7;",
    "&#x9b;31m &#155;2J",
    "`\x1b[2J` and `&#27;c`",
    "```sh\x1b]0;x\x07\n\x1b[2J\n```",
    "[link](http://x/\x1b[31m) ![image\x1b[2J](y)",
    "| a\x1b[1m | b |\n|---|---|\n| \x9b2J | c |",
    "# head\x1bc\n\n> quote \x07\n\n- item \x08\x08",
    "&#x202E;drawkcab \u202e",
    "<b onclick='x\x1b[2J'>html</b>",
)


def texts(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        yield token.content
        yield token.info
        yield from (str(value) for value in token.attrs.values())
        yield from texts(token.children or [])


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_character_survives(attack: str) -> None:
    found = "".join(texts(parser().parse(attack)))
    assert found
    assert not [c for c in found if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert "\u202e" not in found


def test_html_is_text() -> None:
    tokens = parser().parse("<b>bold</b>\n\n<script>x</script>")
    assert "html_block" not in {token.type for token in tokens}
    assert "<b>bold</b>" in "".join(texts(tokens))
