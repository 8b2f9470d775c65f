"""How a weight lies in memory, so that a program of a kernel reads one contiguous range at a time.

A weight [..., N, K] is linear as in a checkpoint, or tiled: [..., N/n, K/k, n, k], tile after tile
along K, which is the order a program reads them in. Its number of dimensions says which. The codes
and the scales of NVFP4 are tiled alike, so a tile's scales are contiguous too; in the linear form
a program reads them eight or sixteen bytes at a time. A weight is tiled in place of the linear one,
once, after it is loaded; one that does not divide into tiles stays linear, and kernels mask it.
"""

from dataclasses import dataclass

from torch import Tensor

PER_SCALE = 16
"""Codes that share a scale."""
PER_BYTE = 2
"""Codes in a byte."""
NVFP4_BYTES = 1 / PER_BYTE + 1 / PER_SCALE
"""Of a weight: its code and its part of a scale."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns (of weights, not of bytes) that a program multiplies at once."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        for name, value, least in (("rows", self.rows, 16), ("columns", self.columns, 32)):
            if value < least or value & (value - 1):
                raise ValueError(f"tile {name} must be a power of two from {least}, got {value}")

    def divides(self, rows: int, columns: int) -> bool:
        """Whether a weight [rows, columns] is a whole number of tiles."""
        return rows % self.rows == 0 and columns % self.columns == 0


@dataclass(frozen=True)
class Layout:
    """Where tile (i, j) and its row r begin, in elements: i * row_step + j * column_step + r * row.

    `matrix` is what a whole matrix of a stack takes; columns within a row are contiguous.
    """

    tile: Tile
    rows: int
    row_step: int
    column_step: int
    row: int
    matrix: int

    def offset(self, rows: int) -> int:
        """Where row `rows` begins, which in the tiled form must open a tile."""
        tiles, rest = divmod(rows, self.tile.rows)
        return tiles * self.row_step + rest * self.row


def is_tiled(weight: Tensor, *, stacked: bool) -> bool:
    """Whether `weight` is in the tiled form; `stacked`: it has a first dimension of experts."""
    dimensions = weight.dim() - stacked
    assert dimensions in (2, 4)
    return dimensions == 4


def tiled(weight: Tensor, tile: Tile, *, per_element: int = 1, parts: int = 1) -> Tensor:
    """weight [..., N, K/per_element] as [..., N/n, K/k, n, k/per_element], contiguous; itself where
    it does not divide. `per_element` is how many columns an element stands for: 2 codes, 16 scales.
    Rows are `parts` equal matrices, of which each must divide.
    """
    rows, columns = weight.shape[-2], weight.shape[-1] * per_element
    if not tile.divides(rows // parts, columns):
        return weight
    split = weight.unflatten(-2, (-1, tile.rows)).unflatten(-1, (-1, tile.columns // per_element))
    return split.transpose(-3, -2).contiguous()


def linear(weight: Tensor) -> Tensor:
    """The linear form [..., N, K] of a tiled weight [..., N/n, K/k, n, k]."""
    return weight.transpose(-3, -2).flatten(-4, -3).flatten(-2, -1)


def layout(weight: Tensor, tile: Tile, *, stacked: bool, per_element: int = 1) -> Layout:
    """How to walk over `weight` in tiles: its own where it is tiled, else `tile`."""
    assert weight.is_contiguous()
    if is_tiled(weight, stacked=stacked):
        row_tiles, column_tiles, rows, columns = weight.shape[-4:]
        own = Tile(rows, columns * per_element)
        step = rows * columns
        return Layout(
            own,
            row_tiles * rows,
            column_tiles * step,
            step,
            columns,
            row_tiles * column_tiles * step,
        )
    rows, columns = weight.shape[-2:]
    step = tile.columns // per_element
    return Layout(tile, rows, tile.rows * columns, step, columns, rows * columns)
