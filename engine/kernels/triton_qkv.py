"""The QKV product's split in Triton: norm and rotary of Q and K, and K, V straight to the cache.

Where the rows stand may be known on the device only, so that one captured launch serves every block
of an answer. `split_qkv` splits a product that is there; `split_linear_launches` make the product
too, and the last program of a head to be done (`triton_arrival.py`) splits it: a program of its own
for each whole head would leave most of a card idle, with 24 heads.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_arrival import is_last, new_counters
from engine.kernels.triton_linear import linear_kernel, linear_tile, prefetch_tile

CHUNK = 16
"""Tokens whose head is split at once."""


@triton.jit
def _turned(x, partner, weight, partner_weight, cos, sin, sign, scale, dtype: tl.constexpr):
    """Norm and rotation of x, each product rounded to dtype as the reference rounds it."""
    own = ((x * scale).to(dtype).to(tl.float32) * weight).to(dtype).to(tl.float32)
    other = ((partner * scale).to(dtype).to(tl.float32) * partner_weight).to(dtype).to(tl.float32)
    straight = (own * cos).to(dtype).to(tl.float32)
    crossed = (sign * other * sin).to(dtype).to(tl.float32)
    return own, (straight + crossed).to(dtype)


@triton.jit
def _split_head(
    qkv, query_weight, key_weight, cos, sin, start, q, keys, values,
    row, rows, head, tokens, table_stride, q_stride, kv_stride, kv_head_stride,
    EPS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROTARY: tl.constexpr, BLOCK: tl.constexpr, AT_START: tl.constexpr,
):  # fmt: skip
    """Head `head` of those of the rows [R] that are below `rows`; arguments as for `qkv_kernel`."""
    batch, token = (row // tokens).to(tl.int64), row % tokens
    place = token
    table = batch * table_stride + token * ROTARY
    if AT_START:
        place = tl.load(start).to(tl.int32) + token
        table = place.to(tl.int64) * ROTARY
    columns = tl.arange(0, BLOCK)
    live = (row < rows)[:, None]
    inside = live & (columns < SIZE)[None, :]
    base = qkv + (row.to(tl.int64) * (HEADS + 2 * KV_HEADS) + head)[:, None] * SIZE
    raw = tl.load(base + columns[None, :], mask=inside, other=0.0)
    in_cache = (batch * kv_stride + place.to(tl.int64) * SIZE)[:, None] + columns[None, :]
    if head >= HEADS + KV_HEADS:
        own_values = values + (head - HEADS - KV_HEADS).to(tl.int64) * kv_head_stride
        tl.store(own_values + in_cache, raw, mask=inside)
    else:
        half = ROTARY // 2
        rotated = columns < ROTARY
        # Pairs are (j, j + half); what does not turn is its own partner, times zero.
        partner_at = tl.where(columns < half, columns + half, columns - half)
        partner_at = tl.where(rotated, partner_at, columns)
        sign = tl.where(columns < half, -1.0, 1.0)[None, :]
        x = raw.to(tl.float32)
        partner = tl.load(base + partner_at[None, :], mask=inside, other=0.0).to(tl.float32)
        norms = key_weight
        if head < HEADS:
            norms = query_weight
        known = columns < SIZE
        weight = tl.load(norms + columns, mask=known, other=0.0).to(tl.float32)[None, :]
        partner_weight = tl.load(norms + partner_at, mask=known, other=0.0).to(tl.float32)[None, :]
        angle = table[:, None] + columns[None, :]
        turns = live & rotated[None, :]
        turn_cos = tl.load(cos + angle, mask=turns, other=1.0).to(tl.float32)
        turn_sin = tl.load(sin + angle, mask=turns, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 1) / SIZE + EPS)[:, None]
        dtype = q.dtype.element_ty
        own, turned = _turned(
            x, partner, weight, partner_weight, turn_cos, turn_sin, sign, scale, dtype
        )
        result = tl.where(rotated[None, :], turned.to(tl.float32), own).to(dtype)
        if head < HEADS:
            at_q = batch * q_stride + (head * tokens + token).to(tl.int64) * SIZE
            tl.store(q + at_q[:, None] + columns[None, :], result, mask=inside)
        else:
            own_keys = keys + (head - HEADS).to(tl.int64) * kv_head_stride
            tl.store(own_keys + in_cache, result, mask=inside)


@triton.jit
def qkv_kernel(
    qkv, query_weight, key_weight, cos, sin, start, q, keys, values,
    rows, tokens, table_stride, q_stride, kv_stride, kv_head_stride,
    EPS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROTARY: tl.constexpr, BLOCK: tl.constexpr, AT_START: tl.constexpr, CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Row = batch * tokens + token of qkv [rows, (H + 2 Hkv) D]; program (CHUNK rows, head).

    q [batch, H, tokens, D] by q_stride a batch; keys and values [batch, Hkv, ..., D] by their
    strides. AT_START: the rows stand at positions start[0] .. of the tables and the cache; else
    the tables are indexed by token, `table_stride` apart from batch to batch.
    """
    wait_for_inputs(AHEAD)
    row = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    _split_head(
        qkv, query_weight, key_weight, cos, sin, start, q, keys, values, row, rows,
        tl.program_id(1), tokens, table_stride, q_stride, kv_stride, kv_head_stride,
        EPS, HEADS, KV_HEADS, SIZE, ROTARY, BLOCK, AT_START,
    )  # fmt: skip


@triton.jit
def split_linear_kernel(
    x, x_codes_scales, w, w_scales, alpha, x_scale, out, M,
    query_weight, key_weight, cos, sin, start, q, keys, values, kv_head_stride, counters,
    N: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
    EPS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROTARY: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """`linear_kernel` into `out` [M, (H + 2 Hkv) D], then, by the last program of a unit of whole
    heads (one head of several tiles, or one tile of several heads), `qkv_kernel` of those."""
    tile, part = tl.program_id(0), tl.program_id(1)
    prefetch_tile(w, w_scales, tile, TILE, ROW, STEP, SCALE_TILE, BN, EVEN, FORM, AHEAD)
    wait_for_inputs(AHEAD)
    linear_tile(
        x, x_codes_scales, w, w_scales, alpha, x_scale, out, M, tile, part,
        N, K, TILE, ROW, STEP, SCALE_TILE, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, SCALED,
    )  # fmt: skip
    tiles: tl.constexpr = SIZE // BN if SIZE > BN else 1
    heads: tl.constexpr = BN // SIZE if BN > SIZE else 1
    unit = tile // tiles
    if is_last(counters + unit * tl.num_programs(1) + part, tiles):
        for number in range(heads * BM // CHUNK):
            head = unit * heads + number // (BM // CHUNK)
            row = part * BM + number % (BM // CHUNK) * CHUNK + tl.arange(0, CHUNK)
            rows = tl.where(head < HEADS + 2 * KV_HEADS, M, 0)
            _split_head(
                out, query_weight, key_weight, cos, sin, start, q, keys, values, row, rows, head,
                M, 0, 0, 0, kv_head_stride, EPS, HEADS, KV_HEADS, SIZE, ROTARY, BLOCK, True,
            )  # fmt: skip


def split_qkv(
    qkv: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    heads: int,
    kv_heads: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of query_key_value to q [..., H, T, D], k and v [..., Hkv, T, D].

    qkv [..., T, (H + 2 Hkv) D] holds the Q heads, then K, then V. Q and K are RMS-normed over D
    with their weights [D], then rotated by cos and sin [..., T, R] (or [T, R] for all batches);
    V is left as it is.
    """
    *batch, tokens, width = qkv.shape
    size, rotary = width // (heads + 2 * kv_heads), cos.shape[-1]
    assert size == query_weight.shape[0]
    per_batch = cos.dim() > 2
    assert not per_batch or list(cos.shape[:-2]) == batch
    qkv, cos, sin = qkv.contiguous(), cos.contiguous(), sin.contiguous()
    q = qkv.new_empty(*batch, heads, tokens, size)
    k, v = (qkv.new_empty(*batch, kv_heads, tokens, size) for _ in range(2))
    arguments: dict[str, Any] = {
        "qkv": qkv, "query_weight": query_weight, "key_weight": key_weight, "cos": cos, "sin": sin,
        "start": qkv, "q": q, "keys": k, "values": v, "rows": qkv.numel() // width,
        "tokens": tokens,
        "table_stride": tokens * rotary if per_batch else 0, "q_stride": heads * tokens * size,
        "kv_stride": kv_heads * tokens * size, "kv_head_stride": tokens * size,
    }  # fmt: skip
    _launch(arguments, heads, kv_heads, rotary, eps, at_start=False).run()
    return q, k, v


def store_launch(
    qkv: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    start: Tensor,
    keys: Tensor,
    values: Tensor,
    q: Tensor,
    *,
    eps: float,
) -> Launch:
    """`split_qkv` of rows [T, (H + 2 Hkv) D] that stand at positions start[0] .. on the device.

    Q goes to q [H, T, D], K and V to keys and values [Hkv, capacity, D]; cos and sin [capacity, R]
    are for all positions; `start` is an int32 tensor of one element, and start + T must not exceed
    the capacity. All contiguous.
    """
    kv_heads, capacity, size = keys.shape
    for tensor in (qkv, cos, sin, keys, values, q):
        assert tensor.is_contiguous()
    arguments: dict[str, Any] = {
        "qkv": qkv, "query_weight": query_weight, "key_weight": key_weight, "cos": cos, "sin": sin,
        "start": start, "q": q, "keys": keys, "values": values, "rows": qkv.shape[0],
        "tokens": qkv.shape[0], "table_stride": 0, "q_stride": 0, "kv_stride": 0,
        "kv_head_stride": capacity * size,
    }  # fmt: skip
    return _launch(arguments, q.shape[0], kv_heads, cos.shape[-1], eps, at_start=True)


def split_linear_launches(product: Launch, store: Launch) -> list[Launch]:
    """`product`, which fills what `store` of `store_launch` reads, and `store`: as one launch where
    the product is `linear_kernel`'s and each of its programs is in one head or has whole ones."""
    size, tile = store.constants["SIZE"], product.constants.get("BN", 0)
    whole = tile > 0 and (size % tile == 0 or tile % size == 0)
    if product.kernel is not linear_kernel or not whole:
        return [product, store]
    assert product.arguments["out"] is store.arguments["qkv"]
    own = ("query_weight", "key_weight", "cos", "sin", "start", "q", "keys", "values")
    arguments = {name: store.arguments[name] for name in (*own, "kv_head_stride")}
    # As many as there are programs is more than there are units.
    counters = new_counters(product.grid[0] * product.grid[1], store.arguments["qkv"].device)
    constants = {k: v for k, v in store.constants.items() if k != "AT_START"}
    joined = Launch(
        f"{product.name}_split", split_linear_kernel, product.grid,
        {**product.arguments, **arguments, "counters": counters},
        {**product.constants, **constants}, product.warps, product.stages,
    )  # fmt: skip
    return [joined]


def _launch(
    arguments: dict[str, Any],
    heads: int,
    kv_heads: int,
    rotary: int,
    eps: float,
    *,
    at_start: bool,
) -> Launch:
    qkv, rows = arguments["qkv"], arguments["rows"]
    assert isinstance(qkv, Tensor)
    size = qkv.shape[-1] // (heads + 2 * kv_heads)
    constants = {
        "EPS": eps, "HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size, "ROTARY": rotary,
        "BLOCK": triton.next_power_of_2(size), "AT_START": at_start, "CHUNK": CHUNK,
    }  # fmt: skip
    grid = (triton.cdiv(rows, CHUNK), heads + 2 * kv_heads)
    return Launch("qkv", qkv_kernel, grid, arguments, constants, warps=4)
