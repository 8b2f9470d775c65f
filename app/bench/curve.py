"""A few points as a picture of characters that every terminal has."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 60, 12
_MARKS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Point:
    """A named point; `y` is a share."""

    name: str
    x: float
    y: float


def curve(points: Sequence[Point], *, across: str, up: str) -> list[str]:
    """The points as letters, joined from left to right, with what each letter stands for."""
    left, right = _range([point.x for point in points], 0.1)
    low, high = _range([point.y for point in points], 0.01)
    low, high = max(low, 0.0), min(high, 1.0)
    cells = [
        (
            round((point.x - left) / (right - left) * (WIDTH - 1)),
            round((point.y - low) / (high - low) * (HEIGHT - 1)),
        )
        for point in points
    ]
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    ordered = sorted(cells)
    for one, other in pairwise(ordered):
        _join(grid, one, other)
    for mark, (x, y) in reversed(list(zip(_MARKS, cells, strict=False))):
        grid[y][x] = mark
    rows = [
        f"{(low + (high - low) * y / (HEIGHT - 1)):>7.1%} |{''.join(grid[y]).rstrip()}"
        for y in reversed(range(HEIGHT))
    ]
    foot = f"{'':>8}+{'-' * WIDTH}"
    ends = f"{'':>9}{left:<{WIDTH // 2}.2f}{right:>{WIDTH // 2}.2f}  {across}"
    names = ", ".join(f"{m} {p.name}" for m, p in zip(_MARKS, points, strict=False))
    legend = textwrap.wrap(names, WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9)
    return [f"{up:>7}", *rows, foot, ends, *legend]


def _range(values: Sequence[float], least: float) -> tuple[float, float]:
    """From the least to the greatest value, and some more where they are the same."""
    low, high = min(values), max(values)
    return (low, high) if high - low >= least else (low - least / 2, high + least / 2)


def _join(grid: list[list[str]], one: tuple[int, int], other: tuple[int, int]) -> None:
    count = max(abs(other[0] - one[0]), abs(other[1] - one[1]), 1)
    for i in range(1, count):
        x = round(one[0] + (other[0] - one[0]) * i / count)
        y = round(one[1] + (other[1] - one[1]) * i / count)
        grid[y][x] = "."
