"""The NVFP4 weight format: quantize and dequantize, bit for bit as the two libraries that write it.

ModelOpt stores what a weight is multiplied with, compressed-tensors what it is divided by, and the
two round their block scales differently; `Style` says whose arithmetic is meant. A weight of zeros
is where we differ: ModelOpt divides zero by zero there and stores NaN, we store zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.kernels.nvfp4_reference import (
    BLOCK,
    LARGEST_CODE,
    LARGEST_SCALE,
    SMALLEST_SCALE,
    pack_codes,
    unpack_codes,
)

Style = Literal["modelopt", "compressed-tensors"]

# compressed-tensors gives a block of zeros this scale, so that nothing is divided by zero.
_SCALE_OF_ZEROS = 0.125
# Elements quantised at a time: the temporaries are some twenty bytes for each.
_CHUNK = 1 << 21


@dataclass(frozen=True)
class NVFP4Tensor:
    """A weight, or a stack of them: value = code * scale * global_scale.

    Attributes:
        packed: codes, uint8 [..., N, K/2], the even element in the low nibble.
        scales: float8_e4m3fn [..., N, K/16], row-major, positive.
        global_scale: float32 [...], one per matrix; a factor.
        divisor: float32 [...], what compressed-tensors stores; global_scale is then its rounded
            reciprocal, and only division by it gives that library's values to the last bit.
        input_scale: float32 [...], the activations' factor, where the checkpoint is W4A4.
    """

    packed: Tensor
    scales: Tensor
    global_scale: Tensor
    divisor: Tensor | None = None
    input_scale: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight: [..., N, K]."""
        *rest, half = self.packed.shape
        return (*rest, 2 * half)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and global scales."""
        return self.packed.nbytes + self.scales.nbytes + self.global_scale.nbytes


def is_quantizable(shape: tuple[int, ...]) -> bool:
    """Whether rows of `shape` [..., N, K] divide into blocks."""
    return len(shape) >= 2 and shape[-1] > 0 and shape[-1] % BLOCK == 0


def largest_magnitude(tensor: Tensor) -> Tensor:
    """Of each matrix of tensor [..., N, K]: [...], in its dtype. Zero for an empty matrix."""
    flat = tensor.flatten(-2)
    if flat.shape[-1] == 0:
        return flat.new_zeros(flat.shape[:-1])
    low, high = torch.aminmax(flat, dim=-1)
    return torch.maximum(high, -low)


def quantize(
    tensor: Tensor, style: Style = "modelopt", *, largest: Tensor | None = None
) -> NVFP4Tensor:
    """The NVFP4 form of tensor [..., N, K] (bf16, f16 or f32), as `style`'s library makes it.

    `largest` [...] (default: each matrix's own) is the magnitude that the global scale is for;
    matrices that share one are given the same.

    Raises:
        ValueError: K is no multiple of 16, or a value is not finite.
    """
    if not is_quantizable(tuple(tensor.shape)):
        raise ValueError(
            f"NVFP4 needs rows of a multiple of {BLOCK} elements, got shape {list(tensor.shape)}"
        )
    own = largest_magnitude(tensor)
    largest = own if largest is None else torch.maximum(own, largest.to(own.dtype))
    if not torch.isfinite(largest).all():
        raise ValueError("NVFP4 cannot hold values that are not finite")
    scale, divisor = _global_scale(largest, style)
    *lead, rows, columns = tensor.shape
    packed = torch.empty(*lead, rows, columns // 2, dtype=torch.uint8, device=tensor.device)
    scales = torch.empty(
        *lead, rows, columns // BLOCK, dtype=torch.float8_e4m3fn, device=tensor.device
    )
    parts = _chunks(tensor, packed, scales, scale if divisor is None else divisor)
    for values, codes_out, scales_out, own_scale in parts:
        blocks = values.unflatten(-1, (-1, BLOCK))
        narrow, effective = (
            _modelopt_scales(blocks, own_scale)
            if style == "modelopt"
            else _compressed_tensors_scales(blocks, own_scale)
        )
        scales_out.copy_(narrow)
        codes_out.copy_(pack_codes((blocks.float() / effective[..., None]).flatten(-2)))
    return NVFP4Tensor(packed, scales, scale, divisor)


def dequantize(tensor: NVFP4Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weight [..., N, K] that `tensor` stands for.

    scale * global_scale is rounded to float32 before the code multiplies it, and the result to
    `dtype`, as both libraries do.
    """
    wide = tensor.scales.float()
    if tensor.divisor is not None:
        effective = wide / tensor.divisor[..., None, None]
    else:
        effective = wide * tensor.global_scale[..., None, None]
    blocks = unpack_codes(tensor.packed).unflatten(-1, (-1, BLOCK))
    return (blocks * effective[..., None]).flatten(-2).to(dtype)


def _global_scale(largest: Tensor, style: Style) -> tuple[Tensor, Tensor | None]:
    """(factor, divisor) float32 for matrices whose largest magnitudes are `largest` [...]."""
    if style == "modelopt":
        factor = largest.float() / (LARGEST_CODE * LARGEST_SCALE)
        return torch.where(factor == 0, 1.0, factor), None
    # In the weight's own dtype, as that library does.
    smallest = torch.finfo(largest.dtype).tiny
    divisor = LARGEST_CODE * LARGEST_SCALE / largest.clamp(min=smallest)
    divisor = torch.nan_to_num(divisor, nan=1.0, posinf=1.0).float()
    return 1.0 / divisor, divisor


def _modelopt_scales(blocks: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """(e4m3 scale, float32 scale * factor), each [n, K/16], of blocks [n, K/16, 16]."""
    scales = blocks.abs().amax(-1).float() / (LARGEST_CODE * factor)
    scales = torch.where(scales == 0, 1.0, scales).clamp(SMALLEST_SCALE, LARGEST_SCALE)
    narrow = scales.to(torch.float8_e4m3fn)
    return narrow, narrow.float() * factor


def _compressed_tensors_scales(blocks: Tensor, divisor: Tensor) -> tuple[Tensor, Tensor]:
    """(e4m3 scale, float32 scale / divisor), each [n, K/16], of blocks [n, K/16, 16]."""
    scales = divisor.reshape(1) * (blocks.abs().amax(-1) / LARGEST_CODE)
    narrow = scales.float().clamp(-LARGEST_SCALE, LARGEST_SCALE).to(torch.float8_e4m3fn)
    wide = narrow.float()
    wide = torch.where(wide == 0, _SCALE_OF_ZEROS, wide)
    return wide.to(torch.float8_e4m3fn), wide / divisor


def _chunks(
    tensor: Tensor, packed: Tensor, scales: Tensor, global_scale: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The same rows of each, a few at a time, with their matrix's global scale (a scalar)."""
    stack = global_scale.reshape(-1)
    matrices = (t.reshape(len(stack), *t.shape[-2:]) for t in (tensor, packed, scales))
    step = max(_CHUNK // tensor.shape[-1], 1)
    for *matrix, own in zip(*matrices, stack, strict=True):
        for first in range(0, tensor.shape[-2], step):
            values, codes, narrow = (part[first : first + step] for part in matrix)
            yield values, codes, narrow, own
