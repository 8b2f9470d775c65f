"""Where top-k and top-p cut a row of logits, in Triton: a value and, among its equals, an index.

Nothing is sorted. float32 values map to integers of the same order, and the cut is the largest
integer t at which the values >= t still count for more than a target: their number for top-k, their
probability for top-p. Two bits of t are found per reading of the row (16 readings), by one program
a row; all sums have a fixed order.

A long row is read so often only where it must be: two readings put its largest values aside, among
which the cut almost always is, and where it then is looked for. How that goes: the k-th largest of
the maxima of any groups of values is at most the k-th largest value, so that at least k values are
not below it; and seldom many more, since few groups hold two of the largest.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs

TILE = 4096
"""Logits that a program holds at once, and that can be put aside."""
NUCLEUS = 512
"""Values that are put aside for top-p alone: mostly more than it keeps."""


@triton.jit
def ordered_key(x):
    """uint32 that orders as the float32 x does; both zeros are one."""
    x = tl.where(x == 0.0, 0.0, x)
    bits = x.to(tl.int32, bitcast=True)
    flipped = tl.where(bits < 0, ~bits, bits | -2147483648)
    return flipped.to(tl.uint32, bitcast=True)


@triton.jit
def key_value(key):
    """The float32 whose key is `key`."""
    bits = key.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits & 0x7FFFFFFF, ~bits).to(tl.float32, bitcast=True)


@triton.jit
def scaled_logits(row, column, vocabulary, mask_id, temperature):
    """row[column] / temperature in float32, -inf at the mask token and beyond the vocabulary."""
    x = tl.load(row + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
    x = tl.where(column == mask_id, float("-inf"), x)
    return tl.div_rn(x, temperature + tl.zeros_like(x))


@triton.jit
def _weight(x, key, top, floor, MASS: tl.constexpr):
    """What a value counts for: 1, or its unnormalised probability if it is at least `floor`."""
    if MASS:
        return tl.where(key >= floor, tl.exp(x - top), 0.0)
    return tl.zeros_like(x) + 1.0


@triton.jit
def _sum_above(row, vocabulary, mask_id, temperature, top, floor, border, MASS: tl.constexpr,
               TILE: tl.constexpr):  # fmt: skip
    """Weights of the values with keys > border, in one reading."""
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        x = scaled_logits(row, column, vocabulary, mask_id, temperature)
        key = ordered_key(x)
        counts = (key > border) & (column < vocabulary)
        total += tl.where(counts, _weight(x, key, top, floor, MASS), 0.0)
    return tl.sum(total, 0)


@triton.jit
def _raised(found, unit, at_low, at_middle, at_high, target):
    """`found` with the next two bits, by what the keys from each of the three next values count."""
    return tl.where(
        tl.sum(at_high, 0) > target,
        found + 3 * unit,
        tl.where(
            tl.sum(at_middle, 0) > target,
            found + 2 * unit,
            tl.where(tl.sum(at_low, 0) > target, found + unit, found),
        ),
    )


@triton.jit
def _search(row, vocabulary, mask_id, temperature, top, floor, target, MASS: tl.constexpr,
            TILE: tl.constexpr):  # fmt: skip
    """Largest key t such that the weights of the keys >= t sum to more than `target`."""
    found = floor * 0
    unit = tl.full((), 1 << 30, tl.uint32)
    for _ in range(16):
        low, middle, high = found + unit, found + 2 * unit, found + 3 * unit
        at_low = tl.zeros((TILE,), tl.float32)
        at_middle = tl.zeros((TILE,), tl.float32)
        at_high = tl.zeros((TILE,), tl.float32)
        for first in range(0, vocabulary, TILE):
            column = first + tl.arange(0, TILE)
            x = scaled_logits(row, column, vocabulary, mask_id, temperature)
            key = ordered_key(x)
            weight = tl.where(column < vocabulary, _weight(x, key, top, floor, MASS), 0.0)
            at_low += tl.where(key >= low, weight, 0.0)
            at_middle += tl.where(key >= middle, weight, 0.0)
            at_high += tl.where(key >= high, weight, 0.0)
        found = _raised(found, unit, at_low, at_middle, at_high, target)
        unit = unit >> 2
    return found


@triton.jit
def _nth_largest(keys, n):
    """The n-th largest of keys [TILE], which are held; 0 where there are fewer."""
    found = tl.full((), 0, tl.uint32)
    unit = tl.full((), 1 << 30, tl.uint32)
    for _ in range(16):
        at_low = (keys >= found + unit).to(tl.float32)
        at_middle = (keys >= found + 2 * unit).to(tl.float32)
        at_high = (keys >= found + 3 * unit).to(tl.float32)
        found = _raised(found, unit, at_low, at_middle, at_high, n - 1.0)
        unit = unit >> 2
    return found


@triton.jit
def _put_aside(row, vocabulary, mask_id, temperature, n, values, columns, TILE: tl.constexpr):
    """The n largest values of a row and some more, with their columns, in their order; returns how
    many there are: if more than TILE, not all could be written."""
    most = tl.zeros((TILE,), tl.uint32)
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        key = ordered_key(scaled_logits(row, column, vocabulary, mask_id, temperature))
        most = tl.maximum(most, tl.where(column < vocabulary, key, 0))
    floor = _nth_largest(most, n)
    count = 0
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        x = scaled_logits(row, column, vocabulary, mask_id, temperature)
        kept = ((ordered_key(x) >= floor) & (column < vocabulary)).to(tl.int32)
        number = tl.sum(kept, 0)
        if number > 0:
            place = count + tl.cumsum(kept, 0) - 1
            there = (kept == 1) & (place < TILE)
            tl.store(values + place, x, mask=there)
            tl.store(columns + place, column, mask=there)
        count += number
    tl.debug_barrier()  # other threads read what these wrote
    return count


@triton.jit
def _nth_equal(row, vocabulary, mask_id, temperature, border, count, TILE: tl.constexpr):
    """Column of the count-th value whose key is `border` (the last column if there are fewer)."""
    seen = 0
    cut = vocabulary - 1
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        key = ordered_key(scaled_logits(row, column, vocabulary, mask_id, temperature))
        equal = ((key == border) & (column < vocabulary)).to(tl.int32)
        rank = seen + tl.cumsum(equal, 0)
        hit = (equal == 1) & (rank == count)
        cut = tl.minimum(cut, tl.min(tl.where(hit, column, vocabulary - 1), 0))
        seen += tl.sum(equal, 0)
    return cut


@triton.jit
def _cut(
    row, vocabulary, mask_id, temperature, highest, whole, limits,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, EXACT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Key and column where a row is cut; `whole` is its probability, where top-k takes none."""
    border = tl.full((), 0, tl.uint32)
    cut = vocabulary - 1
    if TOP_K:
        k = tl.load(limits + 1)
        border = _search(
            row, vocabulary, mask_id, temperature, highest, border, k - 1.0, False, TILE
        )
        if EXACT:
            above = _sum_above(
                row, vocabulary, mask_id, temperature, highest, border, border, False, TILE
            )
            count = (k - above).to(tl.int32)
            cut = _nth_equal(row, vocabulary, mask_id, temperature, border, count, TILE)
    if TOP_P:
        floor = border
        if TOP_K:
            whole = _sum_above(
                row, vocabulary, mask_id, temperature, highest, floor, floor * 0, True, TILE
            )
        target = tl.load(limits + 2) * whole
        border = _search(row, vocabulary, mask_id, temperature, highest, floor, target, True, TILE)
        border = tl.maximum(border, floor)
        above = _sum_above(
            row, vocabulary, mask_id, temperature, highest, floor, border, True, TILE
        )
        # An equal stays while the probability before it is within p: the first one always.
        each = tl.exp(key_value(border) - highest)
        more = tl.floor(tl.maximum(target - above, 0.0) / tl.maximum(each, 1e-38))
        count = tl.minimum(more, 1e9).to(tl.int32) + 1
        cut = _nth_equal(row, vocabulary, mask_id, temperature, border, count, TILE)
    return border, cut


@triton.jit
def cut_kernel(
    logits, top, limits, borders, cuts, values, columns, vocabulary, mask_id,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, EXACT: tl.constexpr, ASIDE: tl.constexpr,
    NUCLEUS: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program row: keep the values above borders[row], and its equals up to column cuts[row].

    logits [rows, V]; top [rows] the largest logit (over no temperature); limits float32 [3]:
    temperature, k, p. TOP_K keeps every value equal to the k-th, or with EXACT just k values.
    ASIDE: values float32 and columns int32 [rows, TILE] take the largest.
    """
    wait_for_inputs(AHEAD)
    line = tl.program_id(0)
    row = logits + line.to(tl.int64) * vocabulary
    temperature = tl.load(limits)
    highest = tl.div_rn(tl.load(top + line), temperature)
    nothing = tl.full((), 0, tl.uint32)
    whole = 0.0
    if not TOP_K:
        whole = _sum_above(
            row, vocabulary, mask_id, temperature, highest, nothing, nothing, True, TILE
        )
    count = TILE + 1
    if ASIDE:
        values += line * TILE
        columns += line * TILE
        n = tl.load(limits + 1) if TOP_K else NUCLEUS * 1.0
        count = _put_aside(row, vocabulary, mask_id, temperature, n, values, columns, TILE)
        if not TOP_K:
            held = tl.minimum(count, TILE)
            mass = _sum_above(values, held, -1, 1.0, highest, nothing, nothing, True, TILE)
            count = tl.where(mass > tl.load(limits + 2) * whole, count, TILE + 1)
    if count <= TILE:
        border, place = _cut(
            values, count, -1, 1.0, highest, whole, limits, TOP_K, TOP_P, EXACT, TILE
        )
        cut = tl.load(columns + place)
    else:
        border, cut = _cut(
            row, vocabulary, mask_id, temperature, highest, whole, limits, TOP_K, TOP_P, EXACT, TILE
        )
    tl.store(borders + line, key_value(border))
    tl.store(cuts + line, cut)


def cut_launch(
    logits: Tensor,
    top: Tensor,
    limits: Tensor,
    borders: Tensor,
    cuts: Tensor,
    *,
    mask_id: int,
    use_k: bool,
    use_p: bool,
    exact: bool = False,
) -> Launch:
    """What fills borders float32 [rows] and cuts int32 [rows] for logits [rows, V].

    A value (over temperature) stays if it is above its row's border, or equal to it and not behind
    column `cut`. `top` [rows] float32 holds the rows' largest logits, `limits` float32 [3]
    temperature, k and p; k counts up to 2^24, and must not exceed V. mask_id -1 suppresses nothing.
    """
    rows, vocabulary = logits.shape
    aside = vocabulary > 2 * TILE
    room = (rows, TILE if aside else 0)
    arguments: dict[str, Any] = {
        "logits": logits, "top": top, "limits": limits, "borders": borders, "cuts": cuts,
        "values": torch.empty(room, device=logits.device),
        "columns": torch.empty(room, dtype=torch.int32, device=logits.device),
        "vocabulary": vocabulary, "mask_id": mask_id,
    }  # fmt: skip
    constants = {
        "TOP_K": use_k, "TOP_P": use_p, "EXACT": exact, "ASIDE": aside, "NUCLEUS": NUCLEUS,
        "TILE": min(TILE, triton.next_power_of_2(vocabulary)),
    }  # fmt: skip
    return Launch("cut", cut_kernel, (rows,), arguments, constants, warps=32)
