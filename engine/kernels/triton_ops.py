"""The operations for tensors on a CUDA device: the Triton kernels, under the reference's names.

No kernel has a gradient: where one is wanted, or for a dtype that the kernels do not have, the
reference computes. Training's masked attention and the rotary tables have no kernel at all.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from engine.kernels import (
    reference,
    triton_attention,
    triton_norm,
    triton_qkv,
    triton_router,
    triton_soft,
)
from engine.kernels.reference import apply_rotary, masked_attention, rotary_tables
from engine.kernels.triton_matrix import expert_mlp, linear
from engine.kernels.triton_nvfp4 import wants_gradient

__all__ = [
    "apply_rotary",
    "attention",
    "expert_mlp",
    "linear",
    "masked_attention",
    "prefix_attention",
    "rms_norm",
    "rotary_tables",
    "route",
    "soft_embedding",
    "split_qkv",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_DTYPES = (torch.bfloat16, torch.float32)


def _where_it_can(ours: Callable[_P, _R], theirs: Callable[_P, _R]) -> Callable[_P, _R]:
    """`ours`, or `theirs` for what a kernel cannot do. The first argument's dtype decides."""

    @wraps(ours)
    def operation(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        able = tensors[0].dtype in _DTYPES and not wants_gradient(*tensors)
        return (ours if able else theirs)(*args, **kwargs)

    return operation


rms_norm = _where_it_can(triton_norm.rms_norm, reference.rms_norm)
split_qkv = _where_it_can(triton_qkv.split_qkv, reference.split_qkv)
attention = _where_it_can(triton_attention.attention, reference.attention)
prefix_attention = _where_it_can(triton_attention.prefix_attention, reference.prefix_attention)
route = _where_it_can(triton_router.route, reference.route)
soft_embedding = _where_it_can(triton_soft.soft_embedding, reference.soft_embedding)
