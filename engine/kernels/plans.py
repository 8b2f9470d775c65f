"""Tile sizes, warps and stages of the matrix kernels, by architecture, form of weight and tokens.

A table and not a search: nothing may be tuned while a graph is captured, and the choice must not
differ from run to run. Whole-program limits that shaped it: registers without spills at the sizes
of LLaDA2.1-mini (`orl-chat kernels` prints them; a register or two is the assembler's own choice)
and 99 KB of shared memory on sm_86, 89 and 120.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from engine.kernels.tiling import Tile

Capability = tuple[int, int]
Form = Literal["plain", "w4a16", "w4a16_whole", "w4a4"]
"""What kernels are told of weights and activations: `triton_product`."""


@dataclass(frozen=True)
class Plan:
    """Of one kernel. `rows`: tokens (or pairs) a program has; `native`: FP4 units multiply W4A4,
    where that is what is asked for; elsewhere it is computed on decoded weights. `tcgen05`: so are
    the matrix units called that take whole tiles from memory of their own (sm_100)."""

    tile: Tile
    rows: int
    warps: int
    stages: int
    native: bool
    tcgen05: bool = False

    def form(self, *, packed: bool, scaled: bool) -> Form:
        """Of a kernel whose weights are `packed` and whose activations have been rounded."""
        if not packed:
            return "plain"
        if scaled and self.native:
            return "w4a4"
        return "w4a16_whole" if self.tcgen05 else "w4a16"

    def stages_for(self, dtype: torch.dtype) -> int:
        """Fewer where activations are float32, as in tests: three would not fit into 99 KB."""
        return self.stages if dtype.itemsize == 2 else 1


def launches_ahead(capability: Capability) -> bool:
    """Whether a kernel can be launched before the one before is done (`triton_ahead`)."""
    return capability >= (9, 0)


def has_fp4_units(capability: Capability) -> bool:
    """Whether the matrix units take NVFP4 as it is."""
    return capability[0] in (10, 11, 12)


def expert_tile(capability: Capability, dtype: torch.dtype | None) -> Tile:
    """Of a stack of experts; `dtype` None: NVFP4. Fixed when weights are tiled, for any tokens."""
    if dtype is None:
        # 128 rows are the least that sm_100's FP4 units take.
        return Tile(128, 128) if has_fp4_units(capability) else Tile(64, 128)
    return Tile(64, 64) if dtype.itemsize == 2 else Tile(64, 32)


def linear_tile(capability: Capability, dtype: torch.dtype | None, rows: int) -> Tile:
    """Of a dense weight of so many rows: small ones are cut finer, to occupy all processors."""
    fine = rows < 16384
    if dtype is None:
        # Of a narrower tile's scales a thread would load two bytes, too few to load them ahead.
        return Tile(32, 256) if fine and not _has_tcgen05(capability) else Tile(128, 128)
    columns = 128 if dtype.itemsize == 2 else 32
    return Tile(32 if fine else 64, columns)


def expert_plan(
    capability: Capability,
    dtype: torch.dtype | None,
    pairs: int,
    experts: int,
    *,
    rounded: bool = False,
    joined: bool = False,
) -> Plan:
    """For `pairs` pairs among `experts` experts; `rounded`: the activations are NVFP4 too;
    `joined`: a shared expert of their form that lies elsewhere is among them."""
    native = rounded and dtype is None and has_fp4_units(capability)
    tcgen05 = _has_tcgen05(capability)
    # Few experts get more than eight of a step's pairs; sm_100's units take no fewer than 16.
    rows = 8 if dtype is None and not tcgen05 else 16
    if pairs > 4 * experts:
        rows = 32
    tile = expert_tile(capability, dtype)
    # Triton 3.6 aborts on sm_100 where two products share an operand's scales. Gate and up spilled
    # there with four warps on FP4 units or where weights are read from two places, and with eight
    # on decoded weights from one.
    warps = warps_for(tile, dtype, native=native)
    if tcgen05 and dtype is None:
        warps = 8 if native or joined else 4
    elif capability in ((8, 0), (9, 0)) and dtype is None and rows == 8:
        # Too few for sm_90's wgmma, which needs a fence for each of the products of decoded
        # weights; with four, sm_80 spilled.
        warps = 2
    return Plan(tile, rows, warps, 3, native, tcgen05)


def linear_plan(
    capability: Capability,
    dtype: torch.dtype | None,
    tokens: int,
    rows: int,
    *,
    rounded: bool = False,
) -> Plan:
    """For x of so many tokens and a weight of so many rows."""
    width = 16 if tokens <= 16 else 32 if tokens <= 32 else 64
    native = rounded and dtype is None and has_fp4_units(capability)
    tile = linear_tile(capability, dtype, rows)
    warps = warps_for(tile, dtype, native=native)
    return Plan(tile, width, warps, 3, native, _has_tcgen05(capability))


def _has_tcgen05(capability: Capability) -> bool:
    return capability[0] in (10, 11)


def warps_for(tile: Tile, dtype: torch.dtype | None, *, native: bool) -> int:
    """Weights that are decoded in registers need twice as many of them: with four warps a tile of
    128 rows spilled."""
    return 8 if dtype is None and not native and tile.rows >= 128 else 4
