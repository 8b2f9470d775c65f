"""Makes cases.safetensors: weights, and what ModelOpt and compressed-tensors pack them into.

    python -m tests.data.nvfp4.make          (needs both libraries; README.md beside says which)

A weight NAME comes with, for each library L ("mo", "ct"): L/NAME/packed, /scale, /global and
/dequantised. A stack of experts is packed expert by expert, as both libraries do it.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

FILE = Path(__file__).with_name("cases.safetensors")


def ties() -> Tensor:
    """Every midpoint between codes and its neighbours, in blocks whose scale is a power of two."""
    middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    near = torch.cat((middles, middles * (1 + 2**-7), middles * (1 - 2**-7)))
    values = torch.cat((near, -near))
    rows = []
    for first in range(0, len(values), 15):
        row = torch.zeros(16)
        part = values[first : first + 15]
        row[0] = 6.0
        row[1 : 1 + len(part)] = part
        rows.append(row)
    block = torch.stack(rows)
    # A block of 6 * 448 sets the global scale to one; the others' scales are 1, 448 and 2^-9.
    whole = torch.zeros(len(rows), 64)
    whole[:, :16] = block * 448
    whole[:, 16:32] = block
    whole[:, 32:48] = block * 2**-9
    whole[0, 0] = 6.0 * 448
    return whole


def cases() -> dict[str, Tensor]:
    """The weights by name."""
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    half_zero = normal(8, 64) * (torch.arange(64) // 16 % 2)
    outlier = 0.02 * normal(24, 96)
    outlier[5, 7] = 3.0e38
    spread = normal(16, 64) * 10.0 ** torch.arange(-30, 34, 4).float()[:, None]
    largest = torch.full((3, 32), torch.finfo(torch.bfloat16).max)
    largest[:, ::2] *= -1
    return {
        "normal": (0.02 * normal(48, 128)).bfloat16(),
        "normal_f32": 0.02 * normal(48, 128),
        "normal_f16": (0.02 * normal(48, 128)).half(),
        "odd_rows": normal(7, 48).bfloat16(),
        "one_block": normal(1, 16).bfloat16(),
        "zeros": torch.zeros(5, 32).bfloat16(),
        "zero_blocks": half_zero.bfloat16(),
        "minus_zero": torch.where(torch.arange(32) == 3, 1.0, -0.0).expand(2, 32).bfloat16(),
        "ties": ties().bfloat16(),
        "subnormal": (normal(8, 32) * 1e-39).bfloat16(),
        "subnormal_f32": normal(8, 32) * 1e-39,
        "tiny": (normal(8, 32) * 1e-36).bfloat16(),
        "outlier": outlier.bfloat16(),
        "spread": spread.bfloat16(),
        "spread_f32": spread,
        "largest": largest.bfloat16(),
        "experts": (normal(5, 24, 48) * torch.tensor([1.0, 0.1, 30, 1e-6, 0])[:, None, None]
                    + torch.tensor([0, 0, 0, 0, 1.0])[:, None, None]).bfloat16(),
    }  # fmt: skip


def by_modelopt(weight: Tensor) -> dict[str, Tensor]:
    """ModelOpt's packing of a matrix."""
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    packed, scale, factor = NVFP4QTensor.quantize(weight.clone(), 16)
    back = packed.dequantize(torch.float32, scale=scale, double_scale=factor, block_sizes={-1: 16})
    return {
        "packed": packed._quantized_data,
        "scale": scale,
        "global": factor.float(),
        "dequantised": back,
    }


def by_compressed_tensors(weight: Tensor) -> dict[str, Tensor]:
    """compressed-tensors' packing of a matrix, in bf16 when unpacked."""
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.quant_scheme import NVFP4A16
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    scheme = QuantizationScheme(targets=["Linear"], **NVFP4A16)
    divisor = generate_gparam(weight.min().reshape(1), weight.max().reshape(1))
    blocks = weight.unflatten(-1, (-1, 16))
    scale, _ = calculate_qparams(
        blocks.amin(-1), blocks.amax(-1), scheme.weights, global_scale=divisor
    )
    state = {"weight": weight, "weight_scale": scale, "weight_global_scale": divisor}
    state = NVFP4PackedCompressor.compress(state, scheme)
    back = NVFP4PackedCompressor.decompress(state, scheme)["weight"]
    return {
        "packed": state["weight_packed"],
        "scale": state["weight_scale"],
        "global": divisor.reshape(()),
        "dequantised": back,
    }


LIBRARIES = {"mo": by_modelopt, "ct": by_compressed_tensors}


def pack(library: str, weight: Tensor) -> dict[str, Tensor]:
    """`weight`, a matrix or a stack of them, as the library packs it."""
    if weight.dim() == 2:
        return LIBRARIES[library](weight)
    parts = [LIBRARIES[library](matrix) for matrix in weight]
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}


def main() -> None:
    tensors: dict[str, Tensor] = {}
    for name, weight in cases().items():
        tensors[f"weight/{name}"] = weight
        for library in LIBRARIES:
            for part, tensor in pack(library, weight).items():
                tensors[f"{library}/{name}/{part}"] = tensor.contiguous()
    save_file(tensors, FILE)


if __name__ == "__main__":
    main()
