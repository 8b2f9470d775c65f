"""y = x w^T for weights that every token meets: plain ones in bf16 or float32, and NVFP4 in both
its forms. One launch; W4A4 has one before it, which rounds the input."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels import tiling
from engine.kernels.plans import Plan
from engine.kernels.tiling import PER_BYTE, PER_SCALE
from engine.kernels.triton_decode import PRODUCT_WORTH
from engine.kernels.triton_product import product
from engine.kernels.triton_slots import round_rows


@triton.jit
def linear_kernel(
    x, x_codes_scales, w, w_scales, alpha, x_scale, out, M,
    N: tl.constexpr, K: tl.constexpr, TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """out [M, N] = alpha * x w^T; program (n, m) computes BN columns of BM rows."""
    tile = tl.program_id(0)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
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
    if FORM != "plain":
        worth = tl.load(alpha)
        if SCALED:
            worth = worth * tl.load(x_scale)
        if FORM == "w4a16":
            worth = worth * PRODUCT_WORTH
        acc = acc * worth
    at = out + row[None, :] * N + n[:, None]
    tl.store(at, acc.to(out.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])


def run_linear(
    x: Tensor, weight: Tensor, plan: Plan, *, scales: Tensor | None = None,
    alpha: Tensor | None = None, x_scale: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x [..., K] times weight [N, K], plain or (with scales as bytes, and alpha) packed: [..., N]."""
    assert x.dtype in (torch.bfloat16, torch.float32)
    size = x.shape[-1]
    flat = x.reshape(-1, size)
    packed, scaled = scales is not None, x_scale is not None
    form = "plain" if not packed else "w4a4" if scaled and plan.native else "w4a16"
    codes = tiling.layout(
        weight, plan.tile, stacked=False, per_element=PER_BYTE if packed else 1
    )
    beside = codes
    if scales is not None:
        beside = tiling.layout(scales, codes.tile, stacked=False, per_element=PER_SCALE)
        assert beside.tile == codes.tile
    result = flat.new_empty(flat.shape[0], codes.rows) if out is None else out
    seen, seen_scales = flat, flat
    if x_scale is not None:
        seen, seen_scales = round_rows(flat, x_scale, native=plan.native).operand(flat)
    tile = codes.tile
    if flat.shape[0]:
        linear_kernel[(triton.cdiv(codes.rows, tile.rows), triton.cdiv(flat.shape[0], plan.rows))](
            seen, seen_scales, weight, flat if scales is None else scales,
            flat if alpha is None else alpha, flat if x_scale is None else x_scale,
            result, flat.shape[0], N=codes.rows, K=size,
            TILE=codes.row_step, ROW=codes.row, STEP=codes.column_step,
            SCALE_TILE=beside.row_step, SCALE_ROW=beside.row, SCALE_STEP=beside.column_step,
            BM=plan.rows, BN=tile.rows, BK=tile.columns, EVEN=tile.divides(codes.rows, size),
            FORM=form, SCALED=scaled, num_warps=plan.warps, num_stages=plan.stages,
        )  # fmt: skip
    return result.view(*x.shape[:-1], codes.rows)
