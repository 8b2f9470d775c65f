"""NVFP4 in plain torch: the CPU path, and the oracle for kernels of the same names.

A weight [N, K] is 4-bit codes (E2M1: sign, two bits of exponent, one of mantissa), two a byte along
K with the even element low; one E4M3 scale per 16 of them, row-major; one float32 alpha per
projection. code * scale has six significant bits, so it is exact in every dtype used here, and
alpha multiplies the finished product (OCP microscaling formats 1.0; NVIDIA's NVFP4 adds alpha).

W4A16 leaves the input as it is; W4A4 rounds it to NVFP4 too, against a calibrated input scale.
Products accumulate in float32 whatever the input's dtype and are rounded to it once.
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels.reference import grouped_experts, linear

BLOCK = 16
"""Elements along K that share a scale."""
LARGEST_CODE = 6.0
LARGEST_SCALE = 448.0
SMALLEST_SCALE = 2.0**-9

_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_VALUES = torch.cat((_MAGNITUDES, -_MAGNITUDES))
# Both values of every byte, low nibble first.
_PAIRS = torch.stack((_VALUES.repeat(16), _VALUES.repeat_interleave(16)), dim=1)

# Halfway between neighbours, where a tie goes to the even code: down from those as they are, up
# from those that stand one float32 lower.
_TIES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
_UPWARD = torch.tensor([False, True, False, True, False, True, False])
_BORDERS = torch.where(_UPWARD, torch.nextafter(_TIES, torch.zeros(())), _TIES)


class Cache(Protocol):
    """Where unpacked weights are kept between calls; kernels that decode in registers need none."""

    def begin(self) -> None:
        """A new call begins."""

    def get(self, key: int, unpack: Callable[[], Tensor]) -> Tensor:
        """The weight of `key`, from memory or from `unpack`."""


def unpack_codes(packed: Tensor) -> Tensor:
    """packed uint8 [..., K/2] to the codes' values, float32 [..., K]."""
    return F.embedding(packed.int(), _PAIRS.to(packed.device)).flatten(-2)


def unpack_weight(packed: Tensor, scales: Tensor) -> Tensor:
    """code * scale, float32 [..., K], of packed uint8 [..., K/2] and scales e4m3 [..., K/16].

    Without alpha, so every value is exact.
    """
    blocks = unpack_codes(packed).unflatten(-1, (-1, BLOCK))
    return (blocks * scales.float()[..., None]).flatten(-2)


def pack_codes(values: Tensor) -> Tensor:
    """float32 [..., K] (K even) rounded to E2M1, ties to even, beyond 6 to 6: uint8 [..., K/2].

    A negative value that rounds to zero keeps its sign.
    """
    codes = torch.bucketize(values.abs(), _BORDERS.to(values.device), out_int32=True)
    codes = (codes + 8 * (values < 0)).to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def quantize_activations(x: Tensor, input_scale: Tensor) -> tuple[Tensor, Tensor]:
    """x [..., K] to packed codes uint8 [..., K/2] and scales e4m3 [..., K/16].

    x is near code * scale * input_scale, with input_scale a float32 scalar: the largest magnitude
    seen in calibration / (6 * 448). A block of larger values saturates.
    """
    blocks = x.float().unflatten(-1, (-1, BLOCK))
    scales = blocks.abs().amax(-1) / (LARGEST_CODE * input_scale)
    scales = torch.where(scales == 0, 1.0, scales).clamp(SMALLEST_SCALE, LARGEST_SCALE)
    scales = scales.to(torch.float8_e4m3fn)
    codes = blocks / (scales.float() * input_scale)[..., None]
    return pack_codes(codes.flatten(-2)), scales


def nvfp4_linear(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    alpha: Tensor,
    input_scale: Tensor | None = None,
    *,
    cache: Cache | None = None,
) -> Tensor:
    """alpha * x (code * scale)^T in x's dtype; x [..., K], packed [N, K/2], scales [N, K/16].

    alpha is a float32 scalar. With `input_scale` x is rounded to NVFP4 first (W4A4).
    """
    wide, alpha = _input(x, alpha, input_scale)
    weight = _cached(cache, 0, packed, scales)
    return (linear(wide, weight) * alpha).to(x.dtype)


def nvfp4_expert_mlp(
    hidden: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    gate_up_scales: Tensor,
    gate_up_alpha: Tensor,
    down: Tensor,
    down_scales: Tensor,
    down_alpha: Tensor,
    *,
    gate_up_input_scale: Tensor | None = None,
    down_input_scale: Tensor | None = None,
    cache: Cache | None = None,
) -> Tensor:
    """sum over k of weights[t, k] * expert_{ids[t, k]}(hidden[t]), in hidden's dtype.

    hidden [T, d], ids and weights [T, K]; gate_up uint8 [E, 2I, d/2] (gate rows first) with scales
    [E, 2I, d/16] and alpha float32 [E, 2] (gate, up); down uint8 [E, d, I/2] with scales
    [E, d, I/16] and alpha [E]. Input scales are float32 scalars, shared by the experts, so that a
    token is rounded once and not once an expert. Only experts in use are unpacked.
    """

    def run(rows: Tensor, counts: list[int]) -> Tensor:
        outputs, first = [], 0
        for expert, count in enumerate(counts):
            if not count:
                continue
            x, alphas = _input(
                rows[first : first + count], gate_up_alpha[expert], gate_up_input_scale
            )
            weight = _cached(cache, 2 * expert, gate_up[expert], gate_up_scales[expert])
            halves = linear(x, weight).unflatten(-1, (2, -1)) * alphas[:, None]
            gate, up = halves.to(rows.dtype).unbind(-2)
            x, alpha = _input(F.silu(gate) * up, down_alpha[expert], down_input_scale)
            weight = _cached(cache, 2 * expert + 1, down[expert], down_scales[expert])
            outputs.append((linear(x, weight) * alpha).to(rows.dtype))
            first += count
        return torch.cat(outputs)

    if cache is not None:
        cache.begin()
    return grouped_experts(hidden, ids, weights, gate_up.shape[0], run)


def _input(x: Tensor, alpha: Tensor, input_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """x in float32, rounded to NVFP4 where it has an input scale, and what the product is worth."""
    if input_scale is None:
        return x.float(), alpha
    return unpack_weight(*quantize_activations(x, input_scale)), alpha * input_scale


def _cached(cache: Cache | None, key: int, packed: Tensor, scales: Tensor) -> Tensor:
    if cache is None:
        return unpack_weight(packed, scales)
    return cache.get(key, lambda: unpack_weight(packed, scales))
