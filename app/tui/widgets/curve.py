"""A curve in braille dots, drawn with the line API: a few values over a few lines."""

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from app.tui.figures import NOTHING, rate

DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""A braille cell's dots, left and right column, from the bottom up."""
AXIS = 7


class Curve(Widget):
    """The latest values from left to right, the scale from zero to the greatest on the left.

    None is a gap. The border's title says what the values are.
    """

    COMPONENT_CLASSES = {"curve--line", "curve--axis"}
    ALLOW_SELECT = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._values: list[float | None] = []

    def show(self, values: Sequence[float | None]) -> None:
        """Take the values, oldest first."""
        self._values = list(values)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of cells, with its mark of the scale on the first and the last."""
        width, height = self.size
        top = max((v for v in self._values if v is not None), default=0.0)
        marks = {0: rate(top) if top > 0 else NOTHING, height - 1: "0"}
        mark = f"{marks.get(y, ''):>{AXIS - 1}}\u2502"
        cells = plot(self._values, max(0, width - AXIS), height, top)
        axis, line = (self.get_component_rich_style(f"curve--{look}") for look in ("axis", "line"))
        return Strip([Segment(mark, axis), Segment(cells[y] if cells else "", line)])


def plot(values: Sequence[float | None], width: int, height: int, top: float) -> list[str]:
    """`values` as `height` lines of `width` braille cells; two values a cell, the newest last."""
    if width <= 0 or height <= 0:
        return []
    shown = list(values)[-2 * width :]
    grid = [[0] * width for _ in range(height)]
    for at, value in enumerate(shown):
        if value is None or top <= 0:
            continue
        dot = min(4 * height - 1, round(value / top * (4 * height - 1)))
        grid[height - 1 - dot // 4][at // 2] |= DOTS[at % 2][dot % 4]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in grid]
