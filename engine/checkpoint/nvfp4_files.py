"""What a quantised checkpoint consists of: which weights are packed, the names of their tensors,
and what its config files say.

Packed are the projections of experts, dense MLPs and attention, or of the routed experts alone.
Embeddings, head, router, norms and residual adapter stay as they are, and so does a matrix whose
rows do not divide into blocks. Activations are not calibrated, so what is written is W4A16.
"""

import re
from collections.abc import Iterable
from typing import Any

from engine.checkpoint.nvfp4 import Style, is_quantizable
from engine.checkpoint.tensor_file import Tensors
from engine.kernels.nvfp4_reference import BLOCK

ROUTED = "routed experts"
_KINDS = {
    ROUTED: r"\.mlp\.experts\.",
    "shared experts": r"\.mlp\.shared_experts\.",
    "attention": r"\.attention\.(query_key_value|dense)\.",
    "dense MLP": r"\.mlp\.(gate|up|down)_proj\.",
    "router": r"\.mlp\.gate\.",
    "embeddings": r"word_embeddings\.",
    "head": r"^lm_head\.",
    "norms": r"norm\.weight$",
}
_PACKED = ("shared experts", "attention", "dense MLP")
OTHER = "residual adapter and others"


def kind_of(name: str) -> str:
    """Which part of the model the tensor `name` (in the published spelling) belongs to."""
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name)), OTHER)


def is_packed(name: str, shape: tuple[int, ...], *, experts_only: bool) -> bool:
    """Whether the weight `name` becomes NVFP4."""
    kind = kind_of(name)
    chosen = kind == ROUTED or (kind in _PACKED and not experts_only)
    return chosen and name.endswith(".weight") and len(shape) == 2 and is_quantizable(shape)


def packed_names(name: str, style: Style) -> tuple[str, str, str]:
    """Names of codes, block scales and global scale of the weight `name`."""
    stem = name.removesuffix(".weight")
    if style == "modelopt":
        return name, f"{stem}.weight_scale", f"{stem}.weight_scale_2"
    return f"{stem}.weight_packed", f"{stem}.weight_scale", f"{stem}.weight_global_scale"


def written(plain: Tensors, style: Style, *, experts_only: bool) -> Tensors:
    """The tensors that a checkpoint of `plain` (in the published spelling) becomes."""
    result: Tensors = {}
    for name, (dtype, shape) in plain.items():
        if not is_packed(name, shape, experts_only=experts_only):
            result[name] = (dtype, shape)
            continue
        rows, columns = shape
        codes, scales, global_scale = packed_names(name, style)
        result[codes] = ("U8", (rows, columns // 2))
        result[scales] = ("F8_E4M3", (rows, columns // BLOCK))
        result[global_scale] = ("F32", () if style == "modelopt" else (1,))
    return result


def partner(name: str) -> str | None:
    """The weight that shares its global scale with `name`: gate and up of one MLP do, since other
    engines run them as one matrix and expect one scale."""
    for own, other in ((".gate_proj.", ".up_proj."), (".up_proj.", ".gate_proj.")):
        if own in name:
            return name.replace(own, other)
    return None


def quantization_config(style: Style, left_out: Iterable[str]) -> dict[str, Any]:
    """config.json's `quantization_config`; `left_out` are the linear layers that stay plain."""
    weights: dict[str, Any] = {
        "num_bits": 4,
        "type": "float",
        "group_size": BLOCK,
        "dynamic": False,
    }
    if style == "modelopt":
        return {
            "quant_method": "modelopt",
            "quant_algo": "W4A16_NVFP4",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": list(left_out),
            "producer": {"name": "orl-chat"},
        }
    return {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "format": "nvfp4-pack-quantized",
                "weights": {
                    **weights,
                    "symmetric": True,
                    "strategy": "tensor_group",
                    "scale_dtype": "torch.float8_e4m3fn",
                    "zp_dtype": "torch.float8_e4m3fn",
                },
                "input_activations": None,
                "output_activations": None,
            }
        },
        "ignore": list(left_out),
        "kv_cache_scheme": None,
    }


def hf_quant_config(left_out: Iterable[str]) -> dict[str, Any]:
    """ModelOpt's hf_quant_config.json."""
    return {
        "producer": {"name": "orl-chat"},
        "quantization": {
            "quant_algo": "W4A16_NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": BLOCK,
            "exclude_modules": list(left_out),
        },
    }
