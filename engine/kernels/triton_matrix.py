"""`linear` and `expert_mlp` of `reference` in Triton: the same names and signatures on CUDA.

Weights may be linear or tiled (`engine/kernels/tiling.py`). Where a gradient is wanted, or for a
dtype that the kernels do not have, the reference computes.
"""

import torch
from torch import Tensor

from engine.kernels import reference, tiling
from engine.kernels.expert_memory import ExpertWeights
from engine.kernels.plans import Capability, expert_plan, linear_plan
from engine.kernels.triton_experts import run_experts
from engine.kernels.triton_linear import run_linear
from engine.kernels.triton_nvfp4 import capability_of, wants_gradient

_DTYPES = (torch.bfloat16, torch.float32)


def linear(x: Tensor, weight: Tensor, *, capability: Capability | None = None) -> Tensor:
    """x weight^T for x [..., in] and weight [out, in]; returns [..., out].

    `capability` stands in for the device's, for tests.
    """
    if wants_gradient(x, weight) or x.dtype not in _DTYPES or weight.dtype != x.dtype:
        return reference.linear(x, _linear_form(weight, stacked=False))
    size = x.shape[-1]
    rows = weight.numel() // size
    plan = linear_plan(capability or capability_of(x), x.dtype, x.numel() // size, rows)
    return run_linear(x, weight.contiguous(), plan, rows)


def expert_mlp(
    hidden: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    *,
    capability: Capability | None = None,
) -> Tensor:
    """sum over k of weights[t, k] * expert_{ids[t, k]}(hidden[t]), in hidden's dtype.

    hidden [T, d], ids and weights [T, K], gate_up [E, 2I, d] (gate rows first), down [E, d, I].
    `capability` stands in for the device's, for tests.
    """
    if wants_gradient(hidden, weights, gate_up, down) or hidden.dtype not in _DTYPES:
        parts = (_linear_form(part, stacked=True) for part in (gate_up, down))
        return reference.expert_mlp(hidden, ids, weights, *parts)
    experts, size = gate_up.shape[0], hidden.shape[-1]
    plan = expert_plan(capability or capability_of(hidden), hidden.dtype, ids.numel(), experts)
    return run_experts(
        hidden.contiguous(), ids.contiguous(), weights.contiguous(),
        ExpertWeights.plain(gate_up), ExpertWeights.plain(down), plan,
        packed=False, width=down.numel() // (experts * size),
    )  # fmt: skip


def _linear_form(weight: Tensor, *, stacked: bool) -> Tensor:
    return tiling.linear(weight) if tiling.is_tiled(weight, stacked=stacked) else weight
