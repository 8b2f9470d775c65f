"""RMSNorm in Triton, alone and with the residual sum before it.

One program a row; the row stays in registers between the mean and the product.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def norm_kernel(
    x, added, also, weight, total, out, eps,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, ALSO: tl.constexpr,
):  # fmt: skip
    """out[row] = rms_norm(x[row] + (added[row] + also[row])); the sum goes to total[row]."""
    row = tl.program_id(0).to(tl.int64) * SIZE
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    dtype = out.dtype.element_ty
    wide = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        term = tl.load(added + row + columns, mask=inside, other=0.0).to(tl.float32)
        if ALSO:
            second = tl.load(also + row + columns, mask=inside, other=0.0).to(tl.float32)
            term = (term + second).to(dtype).to(tl.float32)
        summed = (wide + term).to(dtype)
        tl.store(total + row + columns, summed, mask=inside)
        wide = summed.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps)
    # Rounded before the weight multiplies it, as in the reference.
    normed = (wide * scale).to(dtype).to(tl.float32)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, (normed * factor).to(dtype), mask=inside)


def warps_for(size: int) -> int:
    """Warps of a program that holds one row of `size` elements: 16 elements a lane."""
    return min(max(triton.next_power_of_2(size) // 512, 1), 8)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in x's dtype; `out` like x."""
    x = x.contiguous()
    out = torch.empty_like(x) if out is None else out
    size = x.shape[-1]
    norm_kernel[(x.numel() // size,)](
        x, x, x, weight, out, out, eps,
        SIZE=size, BLOCK=triton.next_power_of_2(size), ADD=False, ALSO=False,
        num_warps=warps_for(size),
    )  # fmt: skip
    return out


def add_rms_norm(
    x: Tensor,
    added: Tensor,
    weight: Tensor,
    eps: float,
    *,
    also: Tensor | None = None,
    total: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(sum, rms_norm(sum)) with sum = x + added, or x + (added + also), each rounded to x's dtype.

    All of x's shape and dtype, contiguous. `total` may be x itself; `out` must not overlap the
    inputs.
    """
    assert x.is_contiguous()
    assert added.is_contiguous()
    total = torch.empty_like(x) if total is None else total
    out = torch.empty_like(x) if out is None else out
    size = x.shape[-1]
    norm_kernel[(x.numel() // size,)](
        x, added, added if also is None else also, weight, total, out, eps,
        SIZE=size, BLOCK=triton.next_power_of_2(size), ADD=True, ALSO=also is not None,
        num_warps=warps_for(size),
    )  # fmt: skip
    return total, out
