"""Lays packed weights out as the kernels read them, once, after a model is loaded.

Only packed ones: they are frozen, so nothing else looks at how they lie. One module after the
other, so that no more than one weight exists twice at a time.
"""

import torch
from torch import nn

from engine.kernels.plans import Capability, expert_tile, linear_tile
from engine.kernels.tiling import PER_BYTE, PER_SCALE, Tile, tiled
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Linear, packed_modules


def tile_weights(model: nn.Module, capability: Capability) -> None:
    """Tile every packed weight of `model` for cards of `capability`; those that do not divide stay
    as they are. Doing it twice is an error."""
    shared = {
        linear
        for module in model.modules()
        if isinstance(module, MoE) and module.shared_experts is not None
        for linear in module.shared_experts.modules()
    }
    for module in packed_modules(model):
        if isinstance(module, NVFP4Linear):
            # Shared experts like the routed ones, so that a kernel can take them together.
            tile = linear_tile(capability, None, module.out_features)
            _tile(module, "packed", "scales", expert_tile(capability, None) if module in shared
                  else tile)  # fmt: skip
        else:
            tile = expert_tile(capability, None)
            _tile(module, "gate_up", "gate_up_scales", tile, parts=2)
            _tile(module, "down", "down_scales", tile)


def _tile(module: nn.Module, codes: str, scales: str, tile: Tile, parts: int = 1) -> None:
    for name, per_element in ((codes, PER_BYTE), (scales, PER_SCALE)):
        weight = module.get_buffer(name)
        # Copied as bytes: not every device copies E4M3.
        laid_out = tiled(weight.view(torch.uint8), tile, per_element=per_element, parts=parts)
        setattr(module, name, laid_out.view(weight.dtype))
