"""ASCII mode: one filter over everything drawn, so that no widget needs a second set of glyphs.

For terminals whose font has no box drawing (`TERM=linux`), for encodings that cannot hold it, and
for whoever asks for it in the settings. Only our own glyphs and the drawing ranges are replaced,
one cell for one cell; a model's words are left as they are.
"""

import os
import sys

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_GLYPHS = dict(
    zip(
        "·–—…↵␣⇥›‹•●○✓✗×▶▼↑↓←→±≥‘’“”‣⭑◦▪",  # noqa: RUF001
        "---~/_>><**o+xx>v^v<>~>''\"\"**o*",
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


class AsciiOnly(LineFilter):
    """Replaces the program's glyphs in every line that is drawn."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in ASCII, cell for cell."""
        return [Segment(ascii_text(text), style, control) for text, style, control in segments]


def is_needed() -> bool:
    """Whether this terminal cannot draw more than ASCII."""
    encoding = (getattr(sys.__stdout__, "encoding", None) or "").lower().replace("-", "")
    return os.environ.get("TERM") == "linux" or encoding in ("ascii", "ansi_x3.41968", "646")
