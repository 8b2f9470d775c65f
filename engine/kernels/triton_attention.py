"""Block-causal grouped-query attention in Triton, over a prefix whose length the device knows.

The queries of one key head are laid out token by token, so that a tile of them stands in few
blocks. The keys are divided between SPLITS programs, each with its own running softmax, and a
second launch combines them: the grid is the same for every length, and a program without keys
leaves at once. With one split (a prefill, where the queries fill the device) it writes the result
itself.

The running softmax: Milakov and Gimelshein, arXiv 1805.02867; its parts are combined in split
order, so the result does not depend on the schedule.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch

SPLITS = 16
"""Parts that the keys of an open block are divided into: with 4 key heads and 2 tiles of queries,
128 programs."""
LARGEST_TILE = 64
"""Queries (of all heads of a group) that one program holds."""
KEYS = 32
"""Keys that it reads at once: with twice as many its registers spill on some cards."""
OPEN_TOKENS = 64
"""More tokens than two open blocks have fill the device without dividing the keys."""


@triton.jit
def _chunk(reach, SPLITS: tl.constexpr, KEYS: tl.constexpr):
    """Keys of one split, in whole tiles."""
    return tl.cdiv(tl.cdiv(reach, SPLITS), KEYS) * KEYS


@triton.jit(do_not_specialize=["start"])
def attention_kernel(
    q, keys, values, start, out, maxima, sums, parts,
    tokens, q_stride, kv_stride, kv_head_stride,
    SCALE: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_LENGTH: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, START: tl.constexpr, BY_TOKEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (tile of queries, batch * Hkv + key head, split).

    q and out [batch, H, tokens, D] contiguous; BY_TOKEN: out is [batch, tokens, H, D]. START says
    what `start` is: "host" an integer, "device" a tensor of one (the queries stand at start ..),
    "lengths" a tensor [batch] of how many keys every query of a batch row sees. parts
    [splits, batch * H * tokens, D], maxima and sums [splits, batch * H * tokens],
    float32, when SPLITS > 1.
    """
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
        result = (mixed / total[:, None]).to(out.dtype.element_ty)
        at = line
        if BY_TOKEN:
            at = (batch.to(tl.int64) * tokens + token) * (KV_HEADS * GROUP) + head
        tl.store(out + at[:, None] * SIZE + columns[None, :], result, mask=held)
    elif low < whole:
        lines = tl.num_programs(1) * GROUP * tokens
        at = split.to(tl.int64) * lines + line
        tl.store(maxima + at, most, mask=real)
        tl.store(sums + at, total, mask=real)
        tl.store(parts + at[:, None] * SIZE + columns[None, :], mixed, mask=held)


@triton.jit(do_not_specialize=["start"])
def combine_kernel(
    start, out, maxima, sums, parts, lines, tokens, batch_lines,
    SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLITS: tl.constexpr, KEYS: tl.constexpr,
    START: tl.constexpr, BY_TOKEN: tl.constexpr,
):  # fmt: skip
    """One program a query and head: the parts of its splits, weighted by exp(maximum)."""
    line = tl.program_id(0)
    if START == "lengths":
        whole = tl.load(start + line // batch_lines).to(tl.int32)
    else:
        first = start
        if START == "device":
            first = tl.load(start).to(tl.int32)
        whole = first + tokens
    used = tl.cdiv(whole, _chunk(whole, SPLITS, KEYS))
    split = tl.arange(0, SPLITS)
    at = split.to(tl.int64) * lines + line
    most = tl.load(maxima + at, mask=split < used, other=float("-inf"))
    total = tl.load(sums + at, mask=split < used, other=0.0)
    weight = tl.exp(most - tl.max(most, 0))
    columns = tl.arange(0, BLOCK_SIZE)
    held = (split < used)[:, None] & (columns < SIZE)[None, :]
    part = tl.load(parts + at[:, None] * SIZE + columns[None, :], mask=held, other=0.0)
    mixed = tl.sum(part * weight[:, None], 0) / tl.sum(total * weight, 0)
    place = line
    if BY_TOKEN:
        heads = batch_lines // tokens
        inner = line % batch_lines
        place = line - inner + (inner % tokens) * heads + inner // tokens
    at_out = out + place.to(tl.int64) * SIZE + columns
    tl.store(at_out, mixed.to(out.dtype.element_ty), mask=columns < SIZE)


def query_rows(group: int, tokens: int) -> int:
    """Queries that one program holds, of `group` heads and `tokens` positions."""
    return min(max(triton.next_power_of_2(group * tokens), 16), LARGEST_TILE)


class Scratch:
    """Where the parts of `open_attention` stand between its two launches: float32, for `lines`
    (batches * heads * tokens) lines of `size`. One serves every layer."""

    def __init__(self, lines: int, size: int, device: torch.device, splits: int = SPLITS) -> None:
        self.splits = splits
        lines = lines if splits > 1 else 0
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


def open_launches(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    start: Tensor,
    scratch: Scratch,
    out: Tensor,
    *,
    block_length: int,
) -> list[Launch]:
    """`attention` of one or two open blocks, q [H, T, D], at start[0] on the device; out [H, T, D],
    or [T, H D] as the next product reads it.

    keys and values [Hkv, capacity, D] hold the prefix and, at start .., the blocks' own; `start`
    is an int32 tensor of one element.
    """
    return _launches(q, keys, values, start, "device", block_length, scratch, out)


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
    for launch in _launches(q, k, v, start, kind, block_length, scratch, out):
        launch.run()
    return out


def _launches(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: int | Tensor,
    kind: str,
    block_length: int,
    scratch: Scratch,
    out: Tensor,
) -> list[Launch]:
    *_, heads, tokens, size = q.shape
    kv_heads, splits = k.shape[-3], scratch.splits
    group, lines = heads // kv_heads, q.numel() // size
    assert k.stride()[-2:] == (size, 1)
    assert k.stride() == v.stride()
    rows = query_rows(group, tokens)
    shared = {
        "start": start, "out": out, "maxima": scratch.maxima, "sums": scratch.sums,
        "parts": scratch.parts, "tokens": tokens,
    }  # fmt: skip
    strides = {
        "q_stride": heads * tokens * size, "kv_stride": k.stride(0) if k.dim() == 4 else 0,
        "kv_head_stride": k.stride(-3),
    }  # fmt: skip
    constants = {
        "SIZE": size, "BLOCK_SIZE": max(triton.next_power_of_2(size), 16), "SPLITS": splits,
        "KEYS": KEYS, "START": kind, "BY_TOKEN": out.dim() == q.dim() - 1,
    }  # fmt: skip
    own = {
        "SCALE": size**-0.5, "GROUP": group, "KV_HEADS": kv_heads, "BLOCK_LENGTH": block_length,
        "ROWS": rows, "PRECISION": "ieee",
    }  # fmt: skip
    grid = (triton.cdiv(group * tokens, rows), lines // (heads * tokens) * kv_heads, splits)
    first = Launch(
        "attention", attention_kernel, grid, {"q": q, "keys": k, "values": v, **shared, **strides},
        constants | own, warps=4, stages=2,
    )  # fmt: skip
    if splits == 1:
        return [first]
    shared |= {"lines": lines, "batch_lines": heads * tokens}
    combine = Launch("attention_combine", combine_kernel, (lines,), shared, constants, warps=2)
    return [first, combine]
