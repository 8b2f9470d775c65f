"""ASCII mode: one filter over everything drawn, so that no widget needs a second set of glyphs.

For terminals whose font has no box drawing (`TERM=linux`), for encodings and locales that cannot
hold it, and for whoever asks for it in the settings. Our own glyphs and the drawing ranges are
replaced, one cell for one cell; words are left as they are, unless the terminal cannot hold them:
then every cell of a character that is not ASCII is a question mark.
"""

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_GLYPHS = dict(
    zip(
        "·–—…↵␣⇥›‹•●○✓✗×▶▼↑↓←→±≥‘’“”‣⭑◦▪‖",  # noqa: RUF001
        "---~/_>><**o+xx>v^v<>~>''\"\"**o*|",
        strict=True,
    )
)
_BARS = dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#", strict=True))
_SHADES = {"░": ":", "▒": "%", "▓": "#", "━": "="}


def _drawing() -> dict[int, str]:
    """Box drawing by direction (all corners and crossings are +), blocks, braille."""
    table: dict[int, str] = {}
    for code in range(0x2500, 0x2580):
        horizontal = chr(code) in "─━┄┅┈┉╌╍═╴╶╸╺╼╾"
        vertical = chr(code) in "│┃┆┇┊┋╎╏║╵╷╹╻╽╿"
        table[code] = "-" if horizontal else "|" if vertical else "+"
    table |= dict.fromkeys(range(0x2580, 0x25A0), "|")
    table |= {0x2580: "-", 0x2594: "-", 0x25AA: "*"}
    table |= dict.fromkeys(range(0x2801, 0x2900), ".")
    return table


_TABLE = {
    **_drawing(),
    **{ord(glyph): text for glyph, text in (_GLYPHS | _BARS | _SHADES).items()},
}


def ascii_text(text: str) -> str:
    """`text` with the program's glyphs replaced."""
    return text if text.isascii() else text.translate(_TABLE)


def strictly_ascii(text: str) -> str:
    """`text` as wide as it is, with a question mark for each cell that ASCII cannot fill."""
    text = ascii_text(text)
    if text.isascii():
        return text
    plain = "".join(c if c.isascii() else "?" * cell_len(c) for c in text)
    return set_cell_size(plain, cell_len(text))


class AsciiOnly(LineFilter):
    """Replaces the program's glyphs in every line that is drawn; where `strict`, all else too."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self._replace = strictly_ascii if strict else ascii_text

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in ASCII, cell for cell."""
        return [Segment(self._replace(text), style, control) for text, style, control in segments]
