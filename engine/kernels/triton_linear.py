"""y = x w^T for weights that every token meets: plain ones in bf16 or float32, and NVFP4 in both
its forms. One launch; W4A4 has one before it where its input is not rounded yet."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels import tiling
from engine.kernels.launch import Launch
from engine.kernels.plans import Plan, warps_for
from engine.kernels.tiling import PER_BYTE, PER_SCALE
from engine.kernels.triton_ahead import MOST, prefetch_range, prefetch_rows, wait_for_inputs
from engine.kernels.triton_product import product, worth
from engine.kernels.triton_round import Rounded, Rounding, round_launch


@triton.jit
def linear_tile(
    x, x_codes_scales, w, w_scales, alpha, x_scale, out, M, tile, part,
    N: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Columns tile BN .. of rows part BM .. of out [M, N] = alpha * x w^T."""
    m = part * BM + tl.arange(0, BM)
    live = m < M
    n = tile * BN + tl.arange(0, BN)
    row = tl.where(live, m, 0).to(tl.int64)
    # The head of a large vocabulary has more elements than 32 bits count.
    first = w + tile.to(tl.int64) * TILE
    scales = w_scales + tile.to(tl.int64) * SCALE_TILE
    acc, _ = product(
        x, x_codes_scales, row, live, first, scales, first, scales, n < N,
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, False,
    )  # fmt: skip
    acc = acc * worth(alpha, x_scale, FORM, SCALED)
    at = out + row[None, :] * N + n[:, None]
    tl.store(at, acc.to(out.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])


@triton.jit
def prefetch_tile(
    w, w_scales, tile,
    TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr, SCALE_TILE: tl.constexpr,
    BN: tl.constexpr, EVEN: tl.constexpr, FORM: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Ask for what a program multiplies first, MOST bytes of its rows' weights."""
    first = w + tile.to(tl.int64) * TILE
    # A row that ends with its tile: one tile lies behind the other. Not EVEN: one may end early.
    if EVEN and STEP == BN * ROW:
        prefetch_range(first, TILE, AHEAD)
        if FORM != "plain":
            prefetch_range(w_scales + tile.to(tl.int64) * SCALE_TILE, SCALE_TILE, AHEAD)
    elif EVEN:
        count: tl.constexpr = MOST // BN * 8 // w.dtype.element_ty.primitive_bitwidth
        prefetch_rows(first + tl.arange(0, BN) * ROW, ROW, count, AHEAD)


@triton.jit
def linear_kernel(
    x, x_codes_scales, w, w_scales, alpha, x_scale, out, M,
    N: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """out [M, N] = alpha * x w^T; program (n, m) computes BN columns of BM rows."""
    tile = tl.program_id(0)
    prefetch_tile(w, w_scales, tile, TILE, ROW, STEP, SCALE_TILE, BN, EVEN, FORM, AHEAD)
    wait_for_inputs(AHEAD)
    linear_tile(
        x, x_codes_scales, w, w_scales, alpha, x_scale, out, M, tile, tl.program_id(1),
        N, K, TILE, ROW, STEP, SCALE_TILE, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, SCALED,
    )  # fmt: skip


def linear_launch(
    x: Tensor, weight: Tensor, plan: Plan, out: Tensor, *, scales: Tensor | None = None,
    alpha: Tensor | None = None, rounding: Rounding | None = None,
) -> Launch:  # fmt: skip
    """What computes out [M, N] from x [M, K] and weight [N, K], plain or (with E4M3 scales as
    bytes, and alpha) packed; with `rounding` from what x has been rounded to."""
    assert x.dtype in (torch.bfloat16, torch.float32)
    packed, scaled = scales is not None, rounding is not None
    form = plan.form(packed=packed, scaled=scaled)
    codes = tiling.layout(weight, plan.tile, stacked=False, per_element=PER_BYTE if packed else 1)
    beside = codes
    if scales is not None:
        beside = tiling.layout(scales, codes.tile, stacked=False, per_element=PER_SCALE)
        assert beside.tile == codes.tile
    seen, seen_scales = (x, x) if rounding is None else rounding.into.operand(x)
    tile, warps = codes.tile, plan.warps
    if tile != plan.tile:  # laid out for another kernel: a shared expert's
        warps = max(warps, warps_for(tile, None if packed else x.dtype, native=plan.native))
    return Launch(
        f"linear_{form}", linear_kernel,
        (triton.cdiv(codes.rows, tile.rows), triton.cdiv(x.shape[0], plan.rows)),
        {
            "x": seen, "x_codes_scales": seen_scales, "w": weight,
            "w_scales": x if scales is None else scales, "alpha": x if alpha is None else alpha,
            "x_scale": x if rounding is None else rounding.scale, "out": out, "M": x.shape[0],
        },
        {
            "N": codes.rows, "K": x.shape[1], "TILE": codes.row_step, "ROW": codes.row,
            "STEP": codes.column_step, "SCALE_TILE": beside.row_step, "SCALE_ROW": beside.row,
            "SCALE_STEP": beside.column_step, "BM": plan.rows, "BN": tile.rows,
            "BK": tile.columns, "EVEN": tile.divides(codes.rows, x.shape[1]), "FORM": form,
            "SCALED": scaled,
        },
        warps, plan.stages_for(x.dtype),
    )  # fmt: skip


def run_linear(
    x: Tensor, weight: Tensor, plan: Plan, rows: int, *, x_scale: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """`linear_launch` run for x [..., K], into a new tensor [..., rows]; with `x_scale` x is
    rounded against it before."""
    flat = x.reshape(-1, x.shape[-1])
    out = flat.new_empty(flat.shape[0], rows)
    if flat.shape[0]:
        rounding = None
        if x_scale is not None:
            tokens, size = flat.shape
            rounding = Rounding(x_scale, Rounded.empty(tokens, size, flat, native=plan.native))
            round_launch(flat, x_scale, rounding.into).run()
        linear_launch(flat, weight, plan, out, rounding=rounding, **options).run()
    return out.view(*x.shape[:-1], rows)
