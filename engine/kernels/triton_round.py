"""Activations rounded to NVFP4 (W4A4): where they lie, and the ways there.

A kernel whose result is only read rounded rounds it itself, with `store_rounded`; a launch of its
own (`round_launch`) is for what comes from elsewhere.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.tiling import PER_BYTE, PER_SCALE
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_decode import pack, quantise, unpacked


@dataclass(frozen=True)
class Rounded:
    """Activations in NVFP4: packed uint8 [T, K/2] and scales uint8 (E4M3's bytes) [T, K/16], or
    where no unit multiplies those, `values`: code * scale [T, K] in a wider dtype, which is exact.
    """

    packed: Tensor | None
    scales: Tensor | None
    values: Tensor | None

    @staticmethod
    def empty(rows: int, columns: int, like: Tensor, *, native: bool) -> "Rounded":
        """Room for `rows` rows."""
        if not native:
            return Rounded(None, None, like.new_empty(rows, columns))
        packed, scales = (
            torch.empty(rows, columns // per, dtype=torch.uint8, device=like.device)
            for per in (PER_BYTE, PER_SCALE)
        )
        return Rounded(packed, scales, None)

    def operand(self, unused: Tensor) -> tuple[Tensor, Tensor]:
        """What a kernel multiplies, and its scales; `unused` where it reads none."""
        if self.values is not None:
            return self.values, unused
        assert self.packed is not None
        assert self.scales is not None
        return self.packed, self.scales


@dataclass(frozen=True)
class Rounding:
    """That a result is to be rounded, against a float32 scalar `scale`, to `into`."""

    scale: Tensor
    into: Rounded


def round_arguments(rounding: Rounding | None, unused: Tensor) -> tuple[dict[str, Any], str]:
    """The arguments `unit`, `packed` and `codes_scales` of a kernel that rounds, and its ROUND:
    "no", "native" or "values"."""
    if rounding is None:
        return dict.fromkeys(("unit", "packed", "codes_scales"), unused), "no"
    packed, scales = rounding.into.operand(unused)
    places = {"unit": rounding.scale, "packed": packed, "codes_scales": scales}
    return places, "values" if rounding.into.packed is None else "native"


@triton.jit
def store_rounded(
    x, unit, packed, scales, at, live, columns,
    R: tl.constexpr, C: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """x [R, C] float32 in NVFP4 against `unit`, the first `columns` (a multiple of 16) of each of
    the rows that are `live`; `at` [R]: which element of the whole a row begins at."""
    codes, exact, byte = quantise(x, unit, R, C)
    if NATIVE:
        half = tl.arange(0, C // 2)[None, :]
        place = packed + (at // 2)[:, None] + half
        tl.store(place, pack(codes, R, C), mask=live[:, None] & (half < columns // 2))
        block = tl.arange(0, C // 16)[None, :]
        place = scales + (at // 16)[:, None] + block
        tl.store(place, byte, mask=live[:, None] & (block < columns // 16))
    else:
        column = tl.arange(0, C)[None, :]
        values = unpacked(codes, exact, R, C).to(packed.dtype.element_ty)
        tl.store(packed + at[:, None] + column, values, mask=live[:, None] & (column < columns))


@triton.jit
def round_row(
    x, scale, packed, scales, row, K: tl.constexpr, BK: tl.constexpr, NATIVE: tl.constexpr
):
    """One row of K values, BK at a time."""
    unit = tl.load(scale)
    for first in range(0, K, BK):
        column = first + tl.arange(0, BK)
        values = tl.load(x + row * K + column, mask=column < K, other=0).to(tl.float32)
        at = tl.zeros((1,), tl.int64) + row * K + first
        store_rounded(values[None, :], unit, packed, scales, at, at >= 0, K - first, 1, BK, NATIVE)


@triton.jit
def round_kernel(
    x, scale, packed, scales,
    K: tl.constexpr, BK: tl.constexpr, NATIVE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program t rounds row t of x [T, K] to NVFP4."""
    wait_for_inputs(AHEAD)
    round_row(x, scale, packed, scales, tl.program_id(0).to(tl.int64), K, BK, NATIVE)


def chunk_for(columns: int) -> int:
    """How many columns of a row are rounded together."""
    return min(triton.next_power_of_2(columns), 1024)


def round_launch(x: Tensor, scale: Tensor, rounded: Rounded) -> Launch:
    """Rounds x [T, K] to NVFP4 against a float32 scalar."""
    assert x.is_contiguous()
    assert x.shape[1] % PER_SCALE == 0
    place, place_scales = rounded.operand(x)
    arguments = {"x": x, "scale": scale, "packed": place, "scales": place_scales}
    constants = {"K": x.shape[1], "BK": chunk_for(x.shape[1]), "NATIVE": place_scales is not x}
    return Launch("round", round_kernel, (x.shape[0],), arguments, constants)
