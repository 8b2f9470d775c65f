"""The operations for tensors on a CUDA device: Triton where there is a kernel, else plain torch."""

from engine.kernels.reference import (
    apply_rotary,
    attention,
    masked_attention,
    prefix_attention,
    rms_norm,
    rotary_tables,
    route,
    soft_embedding,
    split_qkv,
)
from engine.kernels.triton_matrix import expert_mlp, linear

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
