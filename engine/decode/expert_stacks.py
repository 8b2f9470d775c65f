"""A layer's experts as the kernels take them, whatever form their weights have.

A shared expert of the routed ones' size is computed as one of them, which every token has chosen:
its launches are then theirs. Its weights are of their form, or plain where theirs are packed. Where
they are adapted by LoRA, packed where theirs are plain, or take an input rounded against another
scale, it stays a layer of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.expert_memory import Beside, ExpertWeights, PlainExpert, SharedExpert
from engine.model.layers import Linear
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Experts, NVFP4Linear


@dataclass(frozen=True)
class Stacks:
    """Gate and up, down; the scales of their inputs where those are rounded too, that of `down` for
    the shared expert behind the routed ones' own."""

    gate_up: ExpertWeights
    down: ExpertWeights
    packed: bool
    x_scale: Tensor | None = None
    h_scale: Tensor | None = None


def expert_stacks(module: MoE, *, joined: bool) -> Stacks:
    """The routed experts, with the numbers of the shared one where it has joined them."""
    experts: torch.nn.Module = module.experts
    if not isinstance(experts, NVFP4Experts):
        plain = ExpertWeights.plain
        return Stacks(plain(module.experts.gate_up), plain(module.experts.down), packed=False)
    gate_alpha, down_alpha = experts.gate_up_alpha, experts.down_alpha
    x_scale = experts.gate_up_input_scale if experts.quantize_inputs else None
    h_scale = experts.down_input_scale if experts.quantize_inputs else None
    shared = _packed_shared(module)
    if joined and shared is not None:
        gate, up, down = shared
        gate_alpha = torch.cat((gate_alpha, torch.stack((gate.alpha, up.alpha))[None]))
        down_alpha = torch.cat((down_alpha, down.alpha[None]))
        if h_scale is not None and down.input_scale is not None:
            h_scale = torch.stack((h_scale, down.input_scale))
    return Stacks(
        ExpertWeights(experts.gate_up, experts.gate_up_scales.view(torch.uint8), gate_alpha),
        ExpertWeights(experts.down, experts.down_scales.view(torch.uint8), down_alpha),
        packed=True,
        x_scale=x_scale,
        h_scale=h_scale,
    )


def joined_shared(module: MoE) -> Beside | None:
    """The shared expert as one of the routed ones, where it can be."""
    experts: torch.nn.Module = module.experts
    weights = _plain_shared(module)
    if not isinstance(experts, NVFP4Experts):
        if weights is None or not _alike(weights, module.experts.gate_up, module.experts.down):
            return None
        return SharedExpert(*(weight for weight in weights for _ in range(2)))
    if weights is not None:
        return PlainExpert(*weights) if _fits(weights, module) else None
    shared = _packed_shared(module)
    if shared is None or not _rounds_alike(experts, shared):
        return None
    if not _alike([one.packed for one in shared], experts.gate_up, experts.down):
        return None
    parts = (part for one in shared for part in (one.packed, one.scales.view(torch.uint8)))
    return SharedExpert(*parts)


def _plain_shared(module: MoE) -> list[Tensor] | None:
    """Gate, up and down, all in the activations' dtype, which is the model's."""
    mlp = module.shared_experts
    if mlp is None:
        return None
    weights = [
        part.weight
        for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        if isinstance(part, Linear)
    ]
    return weights if len(weights) == 3 else None


def _fits(shared: Sequence[Tensor], module: MoE) -> bool:
    """Whether gate, up and down are of a routed expert's size, of which packed ones say nothing
    where they are tiled."""
    width, size = module.gate.config.moe_intermediate_size, module.gate.config.hidden_size
    return [tuple(part.shape) for part in shared] == [(width, size), (width, size), (size, width)]


def _alike(shared: Sequence[Tensor], gate_up: Tensor, down: Tensor) -> bool:
    """Whether gate, up and down have the shapes of one of the stacks' matrices."""
    own_gate, own_up, own_down = (part.shape for part in shared)
    # Without the first dimension, that of experts, and for gate and up half the rows.
    return (
        own_down == down.shape[1:]
        and own_gate == own_up
        and own_gate[1:] == gate_up.shape[2:]
        and 2 * own_gate[0] == gate_up.shape[1]
    )


def _packed_shared(module: MoE) -> tuple[NVFP4Linear, NVFP4Linear, NVFP4Linear] | None:
    if module.shared_experts is None:
        return None
    mlp = module.shared_experts
    gate, up, down = (
        part if isinstance(part, NVFP4Linear) else None
        for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    )
    if gate is None or up is None or down is None:
        return None
    return gate, up, down


def _rounds_alike(
    experts: NVFP4Experts, shared: tuple[NVFP4Linear, NVFP4Linear, NVFP4Linear]
) -> bool:
    """One input, rounded once, must serve all."""
    rounds = experts.quantize_inputs and experts.gate_up_input_scale is not None
    if any((one.quantize_inputs and one.input_scale is not None) != rounds for one in shared):
        return False
    scales = (experts.gate_up_input_scale, shared[0].input_scale, shared[1].input_scale)
    return not rounds or same_scale(*(scale for scale in scales if scale is not None))


def same_scale(first: Tensor, *others: Tensor) -> bool:
    """Whether scales are equal; on the meta device there are no numbers, and they are."""
    return first.is_meta or all(float(other) == float(first) for other in others)
