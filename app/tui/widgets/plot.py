"""Curves over updates, in braille dots with the line API: several in one frame, each by its look.

A line connects points, dots stand alone; so two curves differ without colour too.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""A braille cell's dots, left and right column, from the bottom up."""
AXIS = 7
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve: points in the order of x; `look` is "line" (connected) or "dots"."""

    points: Sequence[Point]
    look: str = "line"


@dataclass(frozen=True)
class Frame:
    """What a plot covers: x from 0 to `right`, y from `low` to `high`."""

    right: float
    low: float
    high: float

    @classmethod
    def around(
        cls, lines: Sequence[Line], right: float, least: float, most: float = math.inf
    ) -> "Frame":
        """All points with some room, at least `least` high, and between 0 and `most`."""
        values = [y for line in lines for _, y in line.points]
        low, high = min(values, default=0.0), max(values, default=least)
        room = max(0.1 * (high - low), (least - (high - low)) / 2)
        return cls(max(right, 1.0), max(0.0, low - room), min(most, high + room))


class Plot(Widget):
    """The curves with their scale; the border's title says what they are."""

    COMPONENT_CLASSES = {"plot--line", "plot--dots", "plot--axis"}
    ALLOW_SELECT = False

    def __init__(self, *, id: str, mark: Callable[[float], str], legend: str) -> None:
        super().__init__(id=id)
        self._mark, self._legend = mark, legend
        self._lines: list[Line] = []
        self._frame = Frame(1.0, 0.0, 1.0)

    def show(self, lines: Sequence[Line], frame: Frame) -> None:
        """Take the curves."""
        self._lines, self._frame = list(lines), frame
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of cells; the last one is the scale of x."""
        width, height = self.size.width - AXIS, self.size.height - 1
        axis = self.get_component_rich_style("plot--axis")
        if width <= 0 or height <= 0 or y > height:
            return Strip.blank(self.size.width)
        if y == height:
            return Strip([Segment(" " * AXIS + self._scale(width), axis)])
        marks = {0: self._frame.high, height - 1: self._frame.low}
        mark = self._mark(marks[y]) if y in marks and self._lines else ""
        row = draw(self._lines, self._frame, width, height)[y]
        cells = [
            Segment(cell, self.get_component_rich_style(f"plot--{look}")) for cell, look in row
        ]
        return Strip([Segment(f"{mark:>{AXIS - 1}}\u2502", axis), *cells])

    def _scale(self, width: int) -> str:
        """0, what is what where that fits, and the last x."""
        end = f"{self._frame.right:.0f}"
        room = max(1, width - len(end) - 1)
        legend = self._legend if len(self._legend) < room - 1 else ""
        return f"0{legend:^{room}}{end}"


def draw(
    lines: Sequence[Line], frame: Frame, width: int, height: int
) -> list[list[tuple[str, str]]]:
    """`height` rows of `width` cells (text, look); a cell of several curves has the last's look."""
    bits = [[0] * width for _ in range(height)]
    looks = [["line"] * width for _ in range(height)]
    for line in lines:
        for x, y in _dots(line, frame, 2 * width, 4 * height):
            row, column = height - 1 - y // 4, x // 2
            bits[row][column] |= DOTS[x % 2][y % 4]
            looks[row][column] = line.look
    return [
        [(chr(0x2800 + b) if b else " ", look) for b, look in zip(row, own, strict=True)]
        for row, own in zip(bits, looks, strict=True)
    ]


def _dots(line: Line, frame: Frame, width: int, height: int) -> list[tuple[int, int]]:
    """The dots of a curve, x from the left, y from below."""
    span = frame.high - frame.low or 1.0
    places = [
        (
            min(width - 1, max(0, round(x / frame.right * (width - 1)))),
            min(height - 1, max(0, round((y - frame.low) / span * (height - 1)))),
        )
        for x, y in line.points
    ]
    if line.look != "line":
        return places
    found = places[:1]
    for (x0, y0), (x1, y1) in itertools.pairwise(places):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        found += [
            (x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps))
            for i in range(1, steps + 1)
        ]
    return found
