"""y = sum_k weight_k * down_k(silu(gate_k x) * up_k x): the routed experts, in any form of weights.

Four launches: the slot list (and the input rounded to NVFP4), gate and up with SwiGLU, down, the
sum. Every pair (token, expert) has a row of its own in memory until the sum reads a token's K rows
in the router's order: nothing is added by atomics, so equal input gives equal output, bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels import tiling
from engine.kernels.launch import Launch
from engine.kernels.plans import Plan
from engine.kernels.tiling import PER_BYTE, PER_SCALE, Layout
from engine.kernels.triton_decode import PRODUCT_WORTH, pack, quantise, unpacked
from engine.kernels.triton_product import product
from engine.kernels.triton_slots import Rounded, Slots, slots_launch


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
    TOGETHER: tl.constexpr,
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
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, TOGETHER,
    )  # fmt: skip
    if not TOGETHER:
        u, _ = product(
            x, x_codes_scales, pair // TOP_K, live, gate + UP, gate_scales + SCALE_UP,
            gate, gate_scales, n < I,
            K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, False,
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
    for k in range(TOP_K):
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
    def empty(
        x: Tensor, top_k: int, experts: int, width: int, plan: Plan, *, scaled: bool
    ) -> "Buffers":
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


def expert_launches(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: ExpertWeights, down: ExpertWeights,
    plan: Plan, out: Tensor, *, packed: bool, width: int, x_scale: Tensor | None = None,
    h_scale: Tensor | None = None, buffers: Buffers | None = None,
) -> list[Launch]:  # fmt: skip
    """What computes out [T, d] from x [T, d]; the arguments are those of either reference."""
    assert x.dtype in _DTYPES
    assert (x_scale is None) == (h_scale is None)
    experts, top_k = gate_up.codes.shape[0], ids.shape[1]
    scaled = x_scale is not None
    form = "plain" if not packed else "w4a4" if scaled and plan.native else "w4a16"
    buffers = buffers or Buffers.empty(x, top_k, experts, width, plan, scaled=scaled)
    slots = buffers.slots
    seen, seen_scales = (x, x) if buffers.x is None else buffers.x.operand(x)
    hidden, hidden_scales = buffers.h.operand(x)
    shared = {
        "expert": slots.expert, "filled": slots.filled, "pairs": slots.pairs, "total": slots.total,
        "h": hidden, "h_codes_scales": hidden_scales, "h_scale": x if h_scale is None else h_scale,
    }  # fmt: skip
    common = {"BM": slots.rows, "FORM": form, "SCALED": scaled}
    codes, scales = gate_up.layouts(plan, packed=packed)
    tile = codes.tile
    first = Launch(
        f"expert_gate_up_{form}", expert_gate_up_kernel,
        (triton.cdiv(width, tile.rows), slots.capacity),
        {
            "x": seen, "x_codes_scales": seen_scales, "w": gate_up.codes,
            "w_scales": gate_up.scales, "alpha": gate_up.alpha,
            "x_scale": x if x_scale is None else x_scale, **shared,
        },
        {
            **constants(codes, scales), **common, "UP": codes.offset(width),
            "SCALE_UP": scales.offset(width), "I": width, "K": x.shape[1], "TOP_K": top_k,
            "EVEN": tile.divides(width, x.shape[1]), "DTYPE": _DTYPES[x.dtype],
            "TOGETHER": plan.together,
        },
        plan.warps, plan.stages,
    )  # fmt: skip
    codes, scales = down.layouts(plan, packed=packed)
    tile = codes.tile
    second = Launch(
        f"expert_down_{form}", expert_down_kernel,
        (triton.cdiv(x.shape[1], tile.rows), slots.capacity),
        {
            **shared, "w": down.codes, "w_scales": down.scales, "alpha": down.alpha,
            "out": buffers.rows,
        },
        {
            **constants(codes, scales), **common, "N": x.shape[1], "K": width,
            "EVEN": tile.divides(x.shape[1], width),
        },
        plan.warps, plan.stages,
    )  # fmt: skip
    return [
        slots_launch(ids, slots, experts, x, x_scale, buffers.x),
        first,
        second,
        _sum_launch(buffers.rows, weights, out),
    ]


def _sum_launch(rows: Tensor, weights: Tensor, out: Tensor) -> Launch:
    tokens, size = out.shape
    chunk = min(triton.next_power_of_2(size), 1024)
    return Launch(
        "expert_sum", expert_sum_kernel, (tokens, triton.cdiv(size, chunk)),
        {"rows": rows, "weights": weights, "out": out},
        {"N": size, "TOP_K": weights.shape[1], "BN": chunk},
    )  # fmt: skip


def constants(codes: Layout, scales: Layout) -> dict[str, int]:
    """How kernels walk over a stack of weights."""
    return {
        "MATRIX": codes.matrix, "TILE": codes.row_step, "ROW": codes.row,
        "STEP": codes.column_step, "SCALE_MATRIX": scales.matrix, "SCALE_TILE": scales.row_step,
        "SCALE_ROW": scales.row, "SCALE_STEP": scales.column_step,
        "BN": codes.tile.rows, "BK": codes.tile.columns,
    }  # fmt: skip


def run_experts(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """`expert_launches` run, into a new tensor [T, d]."""
    out = torch.empty_like(x)
    if x.shape[0]:
        ids, weights, gate_up, down, plan = arguments
        for launch in expert_launches(x, ids, weights, gate_up, down, plan, out, **options):
            launch.run()
    return out
