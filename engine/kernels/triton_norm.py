"""RMSNorm in Triton, alone and with the residual sum before it and rounding to NVFP4 behind it.

One program a row; the row stays in registers between the mean and the product.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.tiling import PER_SCALE
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_round import Rounding, round_arguments, store_rounded


@dataclass(frozen=True)
class Pairs:
    """What a token's experts made, rows [T (K + s), d], to be summed by weights [T, K + s]; s is 1
    where the last row of a token is the shared expert's."""

    rows: Tensor
    weights: Tensor
    shared: bool


@triton.jit
def norm_kernel(
    x, added, also, shares, weight, total, out, unit, packed, codes_scales,
    EPS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
    ALSO: tl.constexpr, TOP_K: tl.constexpr, SHARED: tl.constexpr, ROUND: tl.constexpr,
    KEEP: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """out[row] = rms_norm(x[row] + (added[row] + also[row])); the sum goes to total[row].

    With TOP_K a row of `added` is the sum of that many rows, weighted by `shares` in float32 in
    their order; with SHARED one more follows, which stands for `also`. ROUND as `round_arguments`
    says: the row goes to NVFP4 too, and without KEEP only there (`out` gives a dtype).
    """
    wait_for_inputs(AHEAD)
    token = tl.program_id(0).to(tl.int64)
    row = token * SIZE
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    dtype = out.dtype.element_ty
    wide = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        if TOP_K > 0:
            first = token * (TOP_K + SHARED)
            term = tl.zeros((BLOCK,), tl.float32)
            for k in range(TOP_K):
                at = added + (first + k) * SIZE + columns
                value = tl.load(at, mask=inside, other=0.0).to(tl.float32)
                term += value * tl.load(shares + first + k)
            term = term.to(dtype).to(tl.float32)
            if SHARED:
                at = added + (first + TOP_K) * SIZE + columns
                second = tl.load(at, mask=inside, other=0.0).to(tl.float32)
                term = (term + second).to(dtype).to(tl.float32)
        else:
            term = tl.load(added + row + columns, mask=inside, other=0.0).to(tl.float32)
        if ALSO:
            second = tl.load(also + row + columns, mask=inside, other=0.0).to(tl.float32)
            term = (term + second).to(dtype).to(tl.float32)
        summed = (wide + term).to(dtype)
        tl.store(total + row + columns, summed, mask=inside)
        wide = summed.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + EPS)
    # Rounded before the weight multiplies it, as in the reference.
    normed = (wide * scale).to(dtype).to(tl.float32)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    result = (normed * factor).to(dtype)
    if KEEP:
        tl.store(out + row + columns, result, mask=inside)
    if ROUND != "no":
        at = tl.zeros((1,), tl.int64) + row
        store_rounded(
            result.to(tl.float32)[None, :], tl.load(unit), packed, codes_scales, at, at >= 0, SIZE,
            1, BLOCK, ROUND == "native",
        )  # fmt: skip


def norm_launch(
    x: Tensor,
    weight: Tensor,
    eps: float,
    out: Tensor,
    *,
    added: Tensor | Pairs | None = None,
    also: Tensor | None = None,
    total: Tensor | None = None,
    rounding: Rounding | None = None,
    keep: bool = True,
) -> Launch:
    """What fills `out` (and, with `added`, `total`); all contiguous, of x's shape and dtype (but
    what is `added` may be pairs yet to be summed). With `rounding` that is filled too, and unless
    `keep` instead of `out`.

    A program holds one row, 16 elements a lane. `total` may be x itself; `out` must not overlap
    the inputs.
    """
    size = x.shape[-1]
    block = triton.next_power_of_2(size)
    first, shares, pairs = added, weight, 0
    if isinstance(added, Pairs):
        first, shares, pairs = added.rows, added.weights, added.weights.shape[1]
    shared = isinstance(added, Pairs) and added.shared
    assert rounding is None or size % PER_SCALE == 0
    places, form = round_arguments(rounding, x)
    arguments: dict[str, Any] = {
        "x": x, "added": x if first is None else first, "also": x if also is None else also,
        "shares": shares, "weight": weight,
        "total": out if total is None else total, "out": out, **places,
    }  # fmt: skip
    constants = {
        "EPS": eps, "SIZE": size, "BLOCK": block, "ADD": added is not None,
        "ALSO": also is not None, "TOP_K": pairs - shared, "SHARED": int(shared),
        "ROUND": form, "KEEP": keep,
    }  # fmt: skip
    grid = (x.numel() // size,)
    # Where pairs are summed their loads are many at once: half as many elements a lane, or they
    # spilled on sm_80.
    warps = min(max(block // (256 if pairs else 512), 1), 8)
    name = "norm_of_pairs" if pairs else "norm"
    if rounding is not None:
        name += "_and_round" if keep else "_round"
    return Launch(name, norm_kernel, grid, arguments, constants, warps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in x's dtype."""
    x = x.contiguous()
    out = torch.empty_like(x)
    norm_launch(x, weight, eps, out).run()
    return out


def add_rms_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, *, also: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(sum, rms_norm(sum)) with sum = x + added, or x + (added + also), each rounded to x's dtype.

    All contiguous and of x's shape and dtype.
    """
    total, out = torch.empty_like(x), torch.empty_like(x)
    norm_launch(x, weight, eps, out, added=added, also=also, total=total).run()
    return total, out
