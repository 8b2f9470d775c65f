"""Block-causal grouped-query attention in Triton, over a prefix whose length the device knows.

The queries of one key head are laid out token by token, so that a tile of them stands in few
blocks. The keys are divided between SPLITS programs, each with its own running softmax, and the
last of them to be done (`triton_arrival.py`) adds their parts up: the grid is the same for every
length, and a program without keys leaves at once. With one split (a prefill, where the queries fill
the device) each writes its result itself.

A tile of open blocks is small: its last program reads SPLITS parts of it alone, at what one
processor gets of the second-level cache, some 100 GB/s. 8 parts of 32 queries are 131 KB, about a
microsecond, which is what a launch more would cost; 16 of 64 would be 0.5 MB.

The running softmax: Milakov and Gimelshein, arXiv 1805.02867; its parts are added in split order,
so the result does not depend on the schedule.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.tiling import PER_SCALE
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_arrival import is_last, new_counters
from engine.kernels.triton_round import Rounding, round_arguments, store_rounded

SPLITS = 8
"""Parts that the keys of an open block are divided into: with 4 key heads and 4 tiles of queries,
128 programs."""
OPEN_TILE, LARGEST_TILE = 32, 64
"""Queries (of all heads of a group) that a program holds where keys are divided, and where not."""
KEYS = 32
"""Keys that it reads at once: with twice as many its registers spill on some cards."""
OPEN_TOKENS = 64
"""More tokens than two open blocks have fill the device without dividing the keys."""


@triton.jit
def _chunk(reach, SPLITS: tl.constexpr, KEYS: tl.constexpr):
    """Keys of one split, in whole tiles."""
    return tl.cdiv(tl.cdiv(reach, SPLITS), KEYS) * KEYS


@triton.jit
def _store(
    result, out, unit, packed, codes_scales, batch, token, head, tokens, live,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, BY_TOKEN: tl.constexpr,
    ROWS: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """result [ROWS, BLOCK_SIZE] float32, a row for each `token` and `head`, rounded to out's dtype
    and, with ROUND, from there to NVFP4."""
    if BY_TOKEN:
        line = (batch.to(tl.int64) * tokens + token) * HEADS + head
    else:
        line = (batch.to(tl.int64) * HEADS + head) * tokens + token
    columns = tl.arange(0, BLOCK_SIZE)[None, :]
    narrow = result.to(out.dtype.element_ty)
    if ROUND == "no":
        held = live[:, None] & (columns < SIZE)
        tl.store(out + line[:, None] * SIZE + columns, narrow, mask=held)
    else:
        store_rounded(
            narrow.to(tl.float32), tl.load(unit), packed, codes_scales, line * SIZE, live, SIZE,
            ROWS, BLOCK_SIZE, ROUND == "native",
        )  # fmt: skip


@triton.jit
def _added(
    maxima, sums, parts, line, live, used, lines,
    SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The `used` parts of each of the lines [ROWS], in their order, weighted by exp(maximum):
    [ROWS, BLOCK_SIZE]. Nothing changes hands between threads."""
    columns = tl.arange(0, BLOCK_SIZE)
    inside = (columns < SIZE)[None, :]
    place = parts + line[:, None] * SIZE + columns[None, :]
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    for split in tl.static_range(SPLITS):
        there = live & (split < used)
        most = tl.load(maxima + split * lines + line, mask=there, other=float("-inf"))
        highest = tl.maximum(highest, most)
    highest = tl.where(live, highest, 0.0)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK_SIZE), tl.float32)
    # All at once they would take more registers than there are.
    for split in tl.range(SPLITS, loop_unroll_factor=4):
        at = split * lines + line
        there = live & (split < used)
        most = tl.load(maxima + at, mask=there, other=float("-inf"))
        weight = tl.exp(most - highest)
        total += tl.load(sums + at, mask=there, other=0.0) * weight
        held = there[:, None] & inside
        mixed += tl.load(place + split * lines * SIZE, mask=held, other=0.0) * weight[:, None]
    return mixed / tl.where(live, total, 1.0)[:, None]


@triton.jit(do_not_specialize=["start"])
def attention_kernel(
    q, keys, values, start, out, unit, packed, codes_scales, maxima, sums, parts, counters,
    tokens, q_stride, kv_stride, kv_head_stride,
    SCALE: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_LENGTH: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, START: tl.constexpr, BY_TOKEN: tl.constexpr, PRECISION: tl.constexpr,
    ROUND: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (tile of queries, batch * Hkv + key head, split).

    q and out [batch, H, tokens, D] contiguous; BY_TOKEN: out is [batch, tokens, H, D]. START says
    what `start` is: "host" an integer, "device" a tensor of one (the queries stand at start ..),
    "lengths" a tensor [batch] of how many keys every query of a batch row sees. When SPLITS > 1:
    parts [splits, batch * H * tokens, D], maxima and sums [splits, batch * H * tokens], float32,
    and a counter for each tile and pair. ROUND as `round_arguments` says: then nothing goes to
    `out`, which gives a dtype.
    """
    wait_for_inputs(AHEAD)
    tile, pair, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, kv_head = pair // KV_HEADS, pair % KV_HEADS
    row = tile * ROWS + tl.arange(0, ROWS)
    token, head = row // GROUP, kv_head * GROUP + row % GROUP
    real = token < tokens
    if START == "lengths":
        reach = tl.load(start + batch).to(tl.int32)
        limit = tl.zeros((ROWS,), tl.int32) + reach
        whole = reach
    else:
        first = start
        if START == "device":
            first = tl.load(start).to(tl.int32)
        whole = first + tokens
        # A query sees its block to the end; `start` is on a block border.
        limit = tl.minimum(first + (token // BLOCK_LENGTH + 1) * BLOCK_LENGTH, whole)
        reach = tl.max(limit, 0)
    # By the whole length, so that every tile's parts are the same ones for the second launch.
    chunk = _chunk(whole, SPLITS, KEYS)
    low = split * chunk
    high = tl.minimum(low + chunk, reach)
    line = (batch * KV_HEADS * GROUP + head).to(tl.int64) * tokens + token
    columns = tl.arange(0, BLOCK_SIZE)
    inside = columns < SIZE
    held = real[:, None] & inside[None, :]
    at_q = batch.to(tl.int64) * q_stride + (head * tokens + token).to(tl.int64) * SIZE
    query = tl.load(q + at_q[:, None] + columns[None, :], mask=held, other=0.0)
    base = batch.to(tl.int64) * kv_stride + kv_head.to(tl.int64) * kv_head_stride
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK_SIZE), tl.float32)
    for j in range(low, high, KEYS):
        at = j + tl.arange(0, KEYS)
        stored = (at < reach)[:, None] & inside[None, :]
        place = base + at.to(tl.int64)[:, None] * SIZE + columns[None, :]
        key = tl.load(keys + place, mask=stored, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * SCALE
        score = tl.where(at[None, :] < limit[:, None], score, float("-inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        # A row that has seen nothing yet: any finite base will do, and -inf less -inf will not.
        base_line = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - base_line[:, None])
        fade = tl.exp(most - base_line)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(values + place, mask=stored, other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(
            weight.to(value.dtype), value, input_precision=PRECISION
        )
        most = higher
    if SPLITS == 1:
        _store(
            mixed / total[:, None], out, unit, packed, codes_scales, batch, token, head, tokens,
            real, KV_HEADS * GROUP, SIZE, BLOCK_SIZE, BY_TOKEN, ROWS, ROUND,
        )  # fmt: skip
    elif low < whole:
        lines = tl.num_programs(1).to(tl.int64) * GROUP * tokens
        own = split * lines + line
        tl.store(maxima + own, most, mask=real)
        tl.store(sums + own, total, mask=real)
        tl.store(parts + own[:, None] * SIZE + columns[None, :], mixed, mask=held)
        used = tl.cdiv(whole, chunk)
        if is_last(counters + tile * tl.num_programs(1) + pair, used):
            result = _added(
                maxima, sums, parts, line, real, used, lines, SIZE, BLOCK_SIZE, SPLITS, ROWS
            )
            _store(
                result, out, unit, packed, codes_scales, batch, token, head, tokens, real,
                KV_HEADS * GROUP, SIZE, BLOCK_SIZE, BY_TOKEN, ROWS, ROUND,
            )  # fmt: skip


def query_rows(group: int, tokens: int, splits: int) -> int:
    """Queries that one program holds, of `group` heads and `tokens` positions."""
    most = LARGEST_TILE if splits == 1 else OPEN_TILE
    return min(max(triton.next_power_of_2(group * tokens), 16), most)


class Scratch:
    """Where the parts of attention stand until they are added up: float32, for `lines` (batches *
    heads * tokens) lines of `size`, and a counter for every tile. One serves every layer."""

    def __init__(self, lines: int, size: int, device: torch.device, splits: int = SPLITS) -> None:
        self.splits = splits
        lines = lines if splits > 1 else 0
        self.counters = new_counters(lines, device)
        self.maxima = torch.empty(splits, lines, device=device)
        self.sums = torch.empty(splits, lines, device=device)
        self.parts = torch.empty(splits, lines, size, device=device)


def attention(q: Tensor, k: Tensor, v: Tensor, *, start: int, block_length: int) -> Tensor:
    """Block-causal grouped-query attention; returns [..., H, T, D].

    q [..., H, T, D] stands at positions start .. start+T-1 (`start` on a block border); k and v
    [..., Hkv, start+T, D] begin at position 0. A query sees its own block and all blocks before it.
    """
    assert start % block_length == 0
    assert k.shape[-2] == start + q.shape[-2]
    splits = SPLITS if start > 0 and q.shape[-2] <= OPEN_TOKENS else 1
    return _attend(q, k, v, start, "host", block_length, splits)


def open_launch(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    start: Tensor,
    scratch: Scratch,
    out: Tensor,
    *,
    block_length: int,
    rounding: Rounding | None = None,
) -> Launch:
    """`attention` of one or two open blocks, q [H, T, D], at start[0] on the device; out [H, T, D],
    or [T, H D] as the next product reads it; that alone can be rounded, and is then left alone.

    keys and values [Hkv, capacity, D] hold the prefix and, at start .., the blocks' own; `start`
    is an int32 tensor of one element.
    """
    return _launch(q, keys, values, start, "device", block_length, scratch, out, rounding)


def prefix_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Grouped-query attention of n rows with prefixes of their own; returns [n, H, T, D].

    q [n, H, T, D], k and v [n, Hkv, S, D]; every query of row i sees the first lengths[i] (>= 1)
    keys of that row.
    """
    return _attend(q, k, v, lengths, "lengths", q.shape[-2], SPLITS)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: int | Tensor,
    kind: str,
    block_length: int,
    splits: int,
) -> Tensor:
    q = q.contiguous()
    k, v = (t if t.dim() <= 4 else t.flatten(0, -4) for t in (k, v))
    out = torch.empty_like(q)
    scratch = Scratch(q.numel() // q.shape[-1], q.shape[-1], q.device, splits)
    _launch(q, k, v, start, kind, block_length, scratch, out, None).run()
    return out


def _launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: int | Tensor,
    kind: str,
    block_length: int,
    scratch: Scratch,
    out: Tensor,
    rounding: Rounding | None,
) -> Launch:
    *_, heads, tokens, size = q.shape
    kv_heads, splits = k.shape[-3], scratch.splits
    group, lines = heads // kv_heads, q.numel() // size
    assert k.stride()[-2:] == (size, 1)
    assert k.stride() == v.stride()
    by_token = out.dim() == q.dim() - 1
    assert rounding is None or (by_token and size % PER_SCALE == 0)
    rows = query_rows(group, tokens, splits)
    places, form = round_arguments(rounding, q)
    arguments = {
        "q": q, "keys": k, "values": v, "start": start, "out": out, **places,
        "maxima": scratch.maxima, "sums": scratch.sums, "parts": scratch.parts,
        "counters": scratch.counters, "tokens": tokens, "q_stride": heads * tokens * size,
        "kv_stride": k.stride(0) if k.dim() == 4 else 0, "kv_head_stride": k.stride(-3),
    }  # fmt: skip
    constants = {
        "SCALE": size**-0.5, "GROUP": group, "KV_HEADS": kv_heads, "SIZE": size,
        "BLOCK_SIZE": max(triton.next_power_of_2(size), 16), "BLOCK_LENGTH": block_length,
        "SPLITS": splits, "ROWS": rows, "KEYS": KEYS, "START": kind, "BY_TOKEN": by_token,
        "PRECISION": "ieee", "ROUND": form,
    }  # fmt: skip
    grid = (triton.cdiv(group * tokens, rows), lines // (heads * tokens) * kv_heads, splits)
    return Launch("attention", attention_kernel, grid, arguments, constants, warps=4, stages=2)
