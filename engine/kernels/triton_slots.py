"""Which rows each program of an expert kernel multiplies: the slot list, built on the device.

A slot is up to `rows` pairs (token, place among its K experts) of one expert. Pair p is token
p // K. An expert with more pairs has several slots, one without has none, so the weights of unused
experts are never read. How many slots there are is known to the device only: kernels are launched
for the most there can be, which depends on shapes alone, and those beyond `total` end at once.
Nothing comes to the host, so a captured graph serves every choice of experts.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_round import Rounded, chunk_for, round_row


@dataclass(frozen=True)
class Slots:
    """expert and filled int32 [capacity], pairs int32 [capacity * rows], total int32 [1].

    Undefined from `total` on, and in `pairs` from `filled` on.
    """

    expert: Tensor
    filled: Tensor
    pairs: Tensor
    total: Tensor
    rows: int

    @property
    def capacity(self) -> int:
        """The most slots there can be."""
        return self.expert.shape[0]

    @staticmethod
    def empty(pairs: int, experts: int, rows: int, device: torch.device) -> "Slots":
        """Room for `pairs` pairs among `experts` experts."""
        # Every used expert but one may waste rows - 1 places; no more experts are used than pairs.
        capacity = max((pairs + min(experts, pairs) * (rows - 1)) // rows, 1)
        expert, filled, held, total = (
            torch.empty(size, dtype=torch.int32, device=device)
            for size in (capacity, capacity, capacity * rows, 1)
        )
        return Slots(expert, filled, held, total, rows)


@triton.jit
def _count_bits(x):
    """How many bits of each int32 (not negative, of at most 16 bits) are set."""
    x = (x & 0x5555) + ((x >> 1) & 0x5555)
    x = (x & 0x3333) + ((x >> 2) & 0x3333)
    x = (x & 0x0F0F) + ((x >> 4) & 0x0F0F)
    return (x & 0x00FF) + (x >> 8)


@triton.jit
def list_slots(
    ids, members, expert, filled, pairs, total, tokens, tiles,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr,
    BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The slots of all experts by one program, the same list as `expert_slots_kernel`'s, from ids
    [tokens, TOP_K] int64, of which a token has each once at most. Bit t of members [tiles, BINS]
    int32: token tile * ROWS + t goes there. Counting bits ranks a token among an expert's own."""
    bins = tl.arange(0, BINS)
    counts = tl.zeros((BINS,), tl.int32)
    for tile in range(tiles):
        counts += _count_bits(tl.load(members + tile * BINS + bins, mask=bins < EXPERTS, other=0))
    needed = (counts + BM - 1) // BM
    before = tl.cumsum(needed, 0) - needed
    tl.store(total, tl.sum(needed))
    pair = tl.arange(0, BLOCK)
    known = pair < tokens * TOP_K
    own = tl.load(ids + pair, mask=known, other=0).to(tl.int32)
    token = pair // TOP_K
    rank = tl.zeros((BLOCK,), tl.int32)
    for tile in range(tiles):
        earlier = tl.minimum(tl.maximum(token - tile * ROWS, 0), ROWS)
        bits = tl.load(members + tile * BINS + own, mask=known, other=0)
        rank += _count_bits(bits & ((1 << earlier) - 1))
    first = tl.gather(before, own, 0)
    tl.store(pairs + first * BM + rank, pair, mask=known)
    opens = known & (rank % BM == 0)
    tl.store(expert + first + rank // BM, own, mask=opens)
    rest = tl.gather(counts, own, 0) - rank
    tl.store(filled + first + rank // BM, tl.minimum(rest, BM), mask=opens)


@triton.jit
def _slots_of(
    ids, expert, filled, pairs, total, me, count,
    BM: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The slots of expert `me`: behind those of the experts before it, pairs in their order."""
    lane = tl.arange(0, BLOCK)
    counts = tl.zeros((BINS,), tl.int32)
    for first in range(0, count, BLOCK):
        at = first + lane
        chosen = tl.load(ids + at, mask=at < count, other=BINS - 1).to(tl.int32)
        counts += tl.histogram(chosen, BINS)
    bins = tl.arange(0, BINS)
    needed = tl.where(bins < BINS - 1, (counts + BM - 1) // BM, 0)
    before = tl.sum(tl.where(bins < me, needed, 0))
    own = tl.sum(tl.where(bins == me, counts, 0))
    if me == 0:
        tl.store(total, tl.sum(needed))
    seen = tl.sum(tl.zeros((BLOCK,), tl.int32))
    for first in range(0, count, BLOCK):
        at = first + lane
        mine = tl.load(ids + at, mask=at < count, other=BINS - 1).to(tl.int32) == me
        rank = seen + tl.cumsum(mine.to(tl.int32)) - 1
        tl.store(pairs + before * BM + rank, at, mask=mine)
        opens = mine & (rank % BM == 0)
        slot = before + rank // BM
        tl.store(expert + slot, tl.zeros((BLOCK,), tl.int32) + me, mask=opens)
        tl.store(filled + slot, tl.minimum(own - rank, BM), mask=opens)
        seen += tl.sum(mine.to(tl.int32))


@triton.jit
def expert_slots_kernel(
    ids, expert, filled, pairs, total, count, x, scale, packed, scales,
    EXPERTS: tl.constexpr, BM: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
    K: tl.constexpr, BK: tl.constexpr, NATIVE: tl.constexpr, ROUND: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program e < EXPERTS makes expert e's slots; with ROUND, EXPERTS + t rounds row t of x."""
    wait_for_inputs(AHEAD)
    me = tl.program_id(0)
    if me < EXPERTS:
        _slots_of(ids, expert, filled, pairs, total, me, count, BM, BINS, BLOCK)
    elif ROUND:
        row = (me - EXPERTS).to(tl.int64)
        round_row(x, scale, packed, scales, row, K, BK, NATIVE)


def bins_for(experts: int) -> int:
    """Of the histogram: one for each expert and one, the last, for what is no pair."""
    return triton.next_power_of_2(experts + 1)


def block_for(pairs: int) -> int:
    """How many pairs a program looks at together."""
    return min(max(triton.next_power_of_2(pairs), 32), 1024)


def slots_launch(
    ids: Tensor,
    slots: Slots,
    experts: int,
    x: Tensor,
    scale: Tensor | None,
    rounded: Rounded | None,
) -> Launch:
    """Fills `slots` from ids int64 [T, K], and with a scale rounds x [T, d] into `rounded`."""
    assert ids.is_contiguous()
    assert x.is_contiguous()
    place, place_scales = (x, x) if rounded is None else rounded.operand(x)
    arguments: dict[str, Tensor | int] = {
        "ids": ids, "expert": slots.expert, "filled": slots.filled, "pairs": slots.pairs,
        "total": slots.total, "count": ids.numel(), "x": x, "scale": x if scale is None else scale,
        "packed": place, "scales": place_scales,
    }  # fmt: skip
    constants = {
        "EXPERTS": experts, "BM": slots.rows, "BINS": bins_for(experts),
        "BLOCK": block_for(ids.numel()), "K": x.shape[1], "BK": chunk_for(x.shape[1]),
        "NATIVE": place_scales is not x, "ROUND": scale is not None,
    }  # fmt: skip
    programs = experts + (0 if scale is None else x.shape[0])
    return Launch("expert_slots", expert_slots_kernel, (programs,), arguments, constants)
