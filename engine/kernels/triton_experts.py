"""y = sum_k weight_k * down_k(silu(gate_k x) * up_k x): the routed experts, in any form of weights.

Four launches: the slot list (and the input rounded to NVFP4), gate and up with SwiGLU, down, the
sum. Every pair (token, expert) has a row of its own in memory until the sum reads a token's K rows
in the router's order: nothing is added by atomics, so equal input gives equal output, bit for bit.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels import tiling
from engine.kernels.plans import Plan
from engine.kernels.tiling import PER_BYTE, PER_SCALE, Layout
from engine.kernels.triton_decode import PRODUCT_WORTH, pack, quantise, unpacked
from engine.kernels.triton_product import product
from engine.kernels.triton_slots import Rounded, Slots, prepare


@triton.jit
def _worth(alpha, x_scale, FORM: tl.constexpr, SCALED: tl.constexpr):
    """What multiplies a product: 1 for plain weights, else alpha times the input's scale."""
    worth = 1.0
    if FORM != "plain":
        worth = tl.load(alpha)
        if SCALED:
            worth = worth * tl.load(x_scale)
        if FORM == "w4a16":
            worth = worth * PRODUCT_WORTH
    return worth


@triton.jit
def expert_gate_up_kernel(
    x, x_codes_scales, w, w_scales, alpha, x_scale, h_scale,
    expert, filled, pairs, total, h, h_codes_scales,
    MATRIX: tl.constexpr, SCALE_MATRIX: tl.constexpr, UP: tl.constexpr, SCALE_UP: tl.constexpr,
    I: tl.constexpr, K: tl.constexpr, TOP_K: tl.constexpr,
    TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """h[p] = silu(gate_e x[p // TOP_K]) * up_e x[p // TOP_K] for the pairs p of a slot; program
    (n, s) computes columns n BN.. of slot s. With SCALED h is rounded to NVFP4, as x has been."""
    slot = tl.program_id(1)
    if slot >= tl.load(total):
        return
    tile = tl.program_id(0)
    e = tl.load(expert + slot).to(tl.int64)
    row = tl.arange(0, BM)
    live = row < tl.load(filled + slot)
    pair = tl.load(pairs + slot * BM + row, mask=live, other=0).to(tl.int64)
    n = tile * BN + tl.arange(0, BN)
    gate = w + e * MATRIX + tile * TILE
    gate_scales = w_scales + e * SCALE_MATRIX + tile * SCALE_TILE
    g, u = product(
        x, x_codes_scales, pair // TOP_K, live, gate, gate_scales,
        gate + UP, gate_scales + SCALE_UP, n < I,
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, True,
    )  # fmt: skip
    # Rounded where the reference rounds: each product, silu, and what they give.
    g = (g * _worth(alpha + 2 * e, x_scale, FORM, SCALED)).to(DTYPE).to(tl.float32)
    u = (u * _worth(alpha + 2 * e + 1, x_scale, FORM, SCALED)).to(DTYPE).to(tl.float32)
    s = (g / (1.0 + tl.exp(-g))).to(DTYPE).to(tl.float32)
    act = (s * u).to(DTYPE)
    if SCALED:
        codes, exact, byte = quantise(act.to(tl.float32).T, tl.load(h_scale), BM, BN)
        if FORM == "w4a4":
            half = tile * (BN // 2) + tl.arange(0, BN // 2)
            mask = live[:, None] & (half < I // 2)[None, :]
            tl.store(h + pair[:, None] * (I // 2) + half[None, :], pack(codes, BM, BN), mask=mask)
            block = tile * (BN // 16) + tl.arange(0, BN // 16)
            mask = live[:, None] & (block < I // 16)[None, :]
            tl.store(h_codes_scales + pair[:, None] * (I // 16) + block[None, :], byte, mask=mask)
        else:
            values = unpacked(codes, exact, BM, BN).to(DTYPE)
            mask = live[:, None] & (n < I)[None, :]
            tl.store(h + pair[:, None] * I + n[None, :], values, mask=mask)
    else:
        tl.store(h + pair[None, :] * I + n[:, None], act, mask=live[None, :] & (n < I)[:, None])


@triton.jit
def expert_down_kernel(
    h, h_codes_scales, w, w_scales, alpha, h_scale, expert, filled, pairs, total, out,
    MATRIX: tl.constexpr, SCALE_MATRIX: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """out[p] = down_e h[p] for the pairs p of a slot; program (n, s) as in gate and up."""
    slot = tl.program_id(1)
    if slot >= tl.load(total):
        return
    tile = tl.program_id(0)
    e = tl.load(expert + slot).to(tl.int64)
    row = tl.arange(0, BM)
    live = row < tl.load(filled + slot)
    pair = tl.load(pairs + slot * BM + row, mask=live, other=0).to(tl.int64)
    n = tile * BN + tl.arange(0, BN)
    first = w + e * MATRIX + tile * TILE
    scales = w_scales + e * SCALE_MATRIX + tile * SCALE_TILE
    acc, _ = product(
        h, h_codes_scales, pair, live, first, scales, first, scales, n < N,
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, False,
    )  # fmt: skip
    acc = (acc * _worth(alpha + e, h_scale, FORM, SCALED)).to(out.dtype.element_ty)
    tl.store(out + pair[None, :] * N + n[:, None], acc, mask=live[None, :] & (n < N)[:, None])


@triton.jit
def expert_sum_kernel(rows, weights, out, N: tl.constexpr, TOP_K: tl.constexpr, BN: tl.constexpr):
    """out[t] = sum_k weights[t, k] * rows[t TOP_K + k] in float32, k upwards; program (t, n)."""
    token = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(0, TOP_K):
        pair = token * TOP_K + k
        value = tl.load(rows + pair * N + n, mask=n < N, other=0).to(tl.float32)
        acc += value * tl.load(weights + pair)
    tl.store(out + token * N + n, acc.to(out.dtype.element_ty), mask=n < N)


@dataclass(frozen=True)
class ExpertWeights:
    """A stack of matrices [E, N, K]: `codes` plain or packed, E4M3 `scales` as bytes, alpha."""

    codes: Tensor
    scales: Tensor
    alpha: Tensor

    @staticmethod
    def plain(weights: Tensor) -> "ExpertWeights":
        """Weights that are no codes; what stands for their scales is never read."""
        return ExpertWeights(weights, weights, weights)

    def layouts(self, plan: Plan, *, packed: bool) -> tuple[Layout, Layout]:
        """Of codes and of scales."""
        codes = tiling.layout(
            self.codes, plan.tile, stacked=True, per_element=PER_BYTE if packed else 1
        )
        if not packed:
            return codes, codes
        scales = tiling.layout(self.scales, codes.tile, stacked=True, per_element=PER_SCALE)
        assert scales.tile == codes.tile
        return codes, scales


@dataclass(frozen=True)
class Buffers:
    """What a call writes to on its way: made by `empty`, once where nothing may be allocated."""

    slots: Slots
    x: Rounded | None
    h: Rounded
    rows: Tensor

    @staticmethod
    def empty(x: Tensor, top_k: int, experts: int, width: int, plan: Plan, *, scaled: bool) -> "Buffers":
        """For x [T, d] through `top_k` of `experts` experts of `width`; scaled: W4A4."""
        tokens, size = x.shape
        pairs = tokens * top_k
        native = scaled and plan.native
        return Buffers(
            Slots.empty(pairs, experts, plan.rows, x.device),
            Rounded.empty(tokens, size, x, native=native) if scaled else None,
            Rounded.empty(pairs, width, x, native=native),
            x.new_empty(pairs, size),
        )


_DTYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def run_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: ExpertWeights, down: ExpertWeights,
    plan: Plan, *, packed: bool, width: int, x_scale: Tensor | None = None,
    h_scale: Tensor | None = None, buffers: Buffers | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x [T, d] through its experts: [T, d]. See the reference of either form for the arguments."""
    assert x.dtype in _DTYPES and (x_scale is None) == (h_scale is None)
    tokens, size = x.shape
    experts, top_k = gate_up.codes.shape[0], ids.shape[1]
    scaled = x_scale is not None
    form = "plain" if not packed else "w4a4" if scaled and plan.native else "w4a16"
    buffers = buffers or Buffers.empty(x, top_k, experts, width, plan, scaled=scaled)
    slots, h = buffers.slots, buffers.h
    prepare(ids, slots, experts, x, x_scale, buffers.x)
    seen, seen_scales = (x, x) if buffers.x is None else buffers.x.operand(x)
    codes, scales = gate_up.layouts(plan, packed=packed)
    tile = codes.tile
    # The up rows begin where the gate rows end: a whole number of tiles on, or as many rows.
    up_codes, up_scales = codes.offset(width), scales.offset(width)
    hidden, hidden_scales = h.operand(x)
    expert_gate_up_kernel[(triton.cdiv(width, tile.rows), slots.capacity)](
        seen, seen_scales, gate_up.codes, gate_up.scales, gate_up.alpha,
        x_scale if scaled else x, h_scale if scaled else x,
        slots.expert, slots.filled, slots.pairs, slots.total, hidden, hidden_scales,
        MATRIX=codes.matrix, SCALE_MATRIX=scales.matrix, UP=up_codes, SCALE_UP=up_scales,
        I=width, K=size, TOP_K=top_k, TILE=codes.row_step, ROW=codes.row, STEP=codes.column_step,
        SCALE_TILE=scales.row_step, SCALE_ROW=scales.row, SCALE_STEP=scales.column_step,
        BM=slots.rows, BN=tile.rows, BK=tile.columns, EVEN=tile.divides(width, size), FORM=form,
        SCALED=scaled, DTYPE=_DTYPES[x.dtype], num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
    codes, scales = down.layouts(plan, packed=packed)
    tile = codes.tile
    expert_down_kernel[(triton.cdiv(size, tile.rows), slots.capacity)](
        hidden, hidden_scales, down.codes, down.scales, down.alpha, h_scale if scaled else x,
        slots.expert, slots.filled, slots.pairs, slots.total, buffers.rows,
        MATRIX=codes.matrix, SCALE_MATRIX=scales.matrix, N=size, K=width,
        TILE=codes.row_step, ROW=codes.row, STEP=codes.column_step,
        SCALE_TILE=scales.row_step, SCALE_ROW=scales.row, SCALE_STEP=scales.column_step,
        BM=slots.rows, BN=tile.rows, BK=tile.columns, EVEN=tile.divides(size, width), FORM=form,
        SCALED=scaled, num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
    out = torch.empty_like(x) if out is None else out
    chunk = min(triton.next_power_of_2(size), 1024)
    expert_sum_kernel[(tokens, triton.cdiv(size, chunk))](
        buffers.rows, weights, out, N=size, TOP_K=top_k, BN=chunk
    )
    return out
