"""The QKV product's split in Triton: norm and rotary of Q and K, and K, V straight to the cache.

One program a head of a token. Where the rows stand may be known on the device only, so that one
captured launch serves every block of an answer.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch


@triton.jit
def _turned(x, partner, weight, partner_weight, cos, sin, sign, scale, dtype: tl.constexpr):
    """Norm and rotation of x, each product rounded to dtype as the reference rounds it."""
    own = ((x * scale).to(dtype).to(tl.float32) * weight).to(dtype).to(tl.float32)
    other = ((partner * scale).to(dtype).to(tl.float32) * partner_weight).to(dtype).to(tl.float32)
    straight = (own * cos).to(dtype).to(tl.float32)
    crossed = (sign * other * sin).to(dtype).to(tl.float32)
    return own, (straight + crossed).to(dtype)


@triton.jit
def qkv_kernel(
    qkv, query_weight, key_weight, cos, sin, start, q, keys, values,
    tokens, table_stride, q_stride, kv_stride, kv_head_stride,
    EPS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROTARY: tl.constexpr, BLOCK: tl.constexpr, AT_START: tl.constexpr,
):  # fmt: skip
    """Row = batch * tokens + token of qkv [rows, (H + 2 Hkv) D], head by program.

    q [batch, H, tokens, D] by q_stride a batch; keys and values [batch, Hkv, ..., D] by their
    strides. AT_START: the rows stand at positions start[0] .. of the tables and the cache; else
    the tables are indexed by token, `table_stride` apart from batch to batch.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    batch, token = row // tokens, row % tokens
    place = token
    table = batch.to(tl.int64) * table_stride + token * ROTARY
    if AT_START:
        place = tl.load(start).to(tl.int32) + token
        table = place.to(tl.int64) * ROTARY
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    base = qkv + (row.to(tl.int64) * (HEADS + 2 * KV_HEADS) + head) * SIZE
    raw = tl.load(base + columns, mask=inside, other=0.0)
    place_in_cache = place.to(tl.int64) * SIZE + columns
    if head >= HEADS + KV_HEADS:
        kv = head - HEADS - KV_HEADS
        at = batch.to(tl.int64) * kv_stride + kv.to(tl.int64) * kv_head_stride
        tl.store(values + at + place_in_cache, raw, mask=inside)
    else:
        half = ROTARY // 2
        rotated = columns < ROTARY
        # Pairs are (j, j + half); what does not turn is its own partner, times zero.
        partner_at = tl.where(columns < half, columns + half, columns - half)
        partner_at = tl.where(rotated, partner_at, columns)
        sign = tl.where(columns < half, -1.0, 1.0)
        x = raw.to(tl.float32)
        partner = tl.load(base + partner_at, mask=inside, other=0.0).to(tl.float32)
        norms = key_weight
        if head < HEADS:
            norms = query_weight
        weight = tl.load(norms + columns, mask=inside, other=0.0).to(tl.float32)
        partner_weight = tl.load(norms + partner_at, mask=inside, other=0.0).to(tl.float32)
        turn_cos = tl.load(cos + table + columns, mask=rotated, other=1.0).to(tl.float32)
        turn_sin = tl.load(sin + table + columns, mask=rotated, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 0) / SIZE + EPS)
        dtype = q.dtype.element_ty
        own, turned = _turned(
            x, partner, weight, partner_weight, turn_cos, turn_sin, sign, scale, dtype
        )
        result = tl.where(rotated, turned.to(tl.float32), own).to(dtype)
        if head < HEADS:
            at = batch.to(tl.int64) * q_stride + (head * tokens + token).to(tl.int64) * SIZE
            tl.store(q + at + columns, result, mask=inside)
        else:
            kv = head - HEADS
            at = batch.to(tl.int64) * kv_stride + kv.to(tl.int64) * kv_head_stride
            tl.store(keys + at + place_in_cache, result, mask=inside)


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
        "start": qkv, "q": q, "keys": k, "values": v, "tokens": tokens,
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
        "start": start, "q": q, "keys": keys, "values": values, "tokens": qkv.shape[0],
        "table_stride": 0, "q_stride": 0, "kv_stride": 0, "kv_head_stride": capacity * size,
    }  # fmt: skip
    return _launch(arguments, q.shape[0], kv_heads, cos.shape[-1], eps, at_start=True)


def _launch(
    arguments: dict[str, Any],
    heads: int,
    kv_heads: int,
    rotary: int,
    eps: float,
    *,
    at_start: bool,
) -> Launch:
    qkv = arguments["qkv"]
    assert isinstance(qkv, Tensor)
    size = qkv.shape[-1] // (heads + 2 * kv_heads)
    constants = {
        "EPS": eps, "HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size, "ROTARY": rotary,
        "BLOCK": triton.next_power_of_2(size), "AT_START": at_start,
    }  # fmt: skip
    grid = (qkv.numel() // qkv.shape[-1], heads + 2 * kv_heads)
    return Launch("qkv", qkv_kernel, grid, arguments, constants, warps=1)
