"""`nvfp4_reference` in Triton: the same names and signatures for tensors on a CUDA device.

Weights may be linear or tiled (`engine/kernels/tiling.py`). No kernel here has a gradient; where
one is wanted the reference computes it. `cache` is taken and left alone: weights are decoded in
registers, and nothing unpacked is kept.
"""

import torch
from torch import Tensor

from engine.kernels import nvfp4_reference, tiling
from engine.kernels.expert_memory import ExpertWeights
from engine.kernels.nvfp4_reference import Cache
from engine.kernels.plans import Capability, expert_plan, linear_plan
from engine.kernels.triton_experts import run_experts
from engine.kernels.triton_linear import run_linear
from engine.kernels.triton_round import Rounded, round_launch


def capability_of(tensor: Tensor) -> Capability:
    """Of the device that `tensor` lies on."""
    return torch.cuda.get_device_capability(tensor.device)


def wants_gradient(*tensors: Tensor) -> bool:
    """Whether autograd would record an operation on them."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def quantize_activations(x: Tensor, input_scale: Tensor) -> tuple[Tensor, Tensor]:
    """x [..., K] to packed codes uint8 [..., K/2] and scales e4m3 [..., K/16]."""
    flat = x.reshape(-1, x.shape[-1])
    rounded = Rounded.empty(flat.shape[0], flat.shape[1], x, native=True)
    if flat.shape[0]:
        round_launch(flat, input_scale, rounded).run()
    packed, scales = (part.view(*x.shape[:-1], part.shape[-1]) for part in rounded.operand(x))
    return packed, scales.view(torch.float8_e4m3fn)


def nvfp4_linear(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    alpha: Tensor,
    input_scale: Tensor | None = None,
    *,
    cache: Cache | None = None,
    capability: Capability | None = None,
) -> Tensor:
    """alpha * x (code * scale)^T in x's dtype; x [..., K], packed [N, K/2], scales [N, K/16].

    `capability` stands in for the device's, for tests.
    """
    if wants_gradient(x):
        codes, beside = (_linear_form(part, stacked=False) for part in (packed, scales))
        return nvfp4_reference.nvfp4_linear(x, codes, beside, alpha, input_scale)
    tokens = x.numel() // x.shape[-1]
    rows = scales.numel() * tiling.PER_SCALE // x.shape[-1]
    rounded = input_scale is not None
    plan = linear_plan(capability or capability_of(x), None, tokens, rows, rounded=rounded)
    return run_linear(
        x, packed, plan, rows, scales=scales.view(torch.uint8), alpha=alpha, x_scale=input_scale
    )


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
    capability: Capability | None = None,
) -> Tensor:
    """sum over k of weights[t, k] * expert_{ids[t, k]}(hidden[t]), in hidden's dtype.

    As `nvfp4_reference.nvfp4_expert_mlp`; `capability` stands in for the device's, for tests.
    """
    if wants_gradient(hidden, weights):
        parts = (gate_up, gate_up_scales, down, down_scales)
        first, first_scales, last, last_scales = (_linear_form(p, stacked=True) for p in parts)
        return nvfp4_reference.nvfp4_expert_mlp(
            hidden, ids, weights, first, first_scales, gate_up_alpha, last, last_scales,
            down_alpha, gate_up_input_scale=gate_up_input_scale, down_input_scale=down_input_scale,
        )  # fmt: skip
    experts = gate_up.shape[0]
    size = hidden.shape[-1]
    rounded = gate_up_input_scale is not None
    plan = expert_plan(
        capability or capability_of(hidden), None, ids.numel(), experts, rounded=rounded
    )
    width = down.numel() * tiling.PER_BYTE // (experts * size)
    return run_experts(
        hidden.contiguous(), ids.contiguous(), weights.contiguous(),
        ExpertWeights(gate_up, gate_up_scales.view(torch.uint8), gate_up_alpha),
        ExpertWeights(down, down_scales.view(torch.uint8), down_alpha),
        plan, packed=True, width=width, x_scale=gate_up_input_scale, h_scale=down_input_scale,
    )  # fmt: skip


def _linear_form(weight: Tensor, *, stacked: bool) -> Tensor:
    return tiling.linear(weight) if tiling.is_tiled(weight, stacked=stacked) else weight
