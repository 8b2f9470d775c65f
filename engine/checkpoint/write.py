"""Writing a model as a LLaDA2 checkpoint: config.json and safetensors under the published names."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.checkpoint.names import model_tensors, places
from engine.checkpoint.tensor_writer import save_tensors
from engine.config import ModelConfig
from engine.model.lora import lora_parameters
from engine.model.quantised import packed_modules
from engine.model.transformer import LLaDA2Model


def save_checkpoint(
    model: LLaDA2Model,
    directory: str | Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
    extra_config: dict[str, Any] | None = None,
) -> None:
    """Write config.json and model.safetensors into `directory` (made if missing).

    Weights are rounded to `dtype`; router biases stay float32, since the choice of experts hangs
    on their last digits. Each file appears whole or not at all. The tokenizer is not this
    function's.

    Raises:
        OSError: the folder cannot be written, or holds the index of a sharded checkpoint, which
            a load would follow to the old weights.
        ValueError: the model still has LoRA beside its weights; merge it first. Or its weights
            are packed, which only `quantise.py` writes.
    """
    if any(packed_modules(model)):
        raise ValueError("a quantised model cannot be written; save the model it was made from")
    folder = Path(directory)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        raise FileExistsError(f"{index} belongs to another checkpoint; name another folder.")
    if lora_parameters(model):
        raise ValueError("LoRA has no place in a checkpoint; merge it into the weights first.")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = model_tensors(model)
    on_disk = {
        name: _as_stored(name, place.view(tensors), dtype) for name, place in places(model).items()
    }
    temporary = folder / "model.safetensors.part"
    save_tensors(on_disk, temporary)
    os.replace(temporary, folder / "model.safetensors")
    residual = model.residual if model.residual_adapter is not None else None
    numbers = replace(model.config, residual=residual)
    config = config_dict(numbers, dtype) | (extra_config or {})
    temporary = folder / "config.json.part"
    temporary.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "config.json")


def _as_stored(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    kept = torch.float32 if name.endswith("expert_bias") else dtype
    # A clone: slices of a stack share storage, which safetensors refuses.
    return tensor.to(device="cpu", dtype=kept).clone(memory_format=torch.contiguous_format)


def config_dict(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """config.json's content, with the keys of the published files that fix the architecture."""
    numbers = {name: value for name, value in asdict(config).items() if value is not None}
    return {
        **numbers,
        "architectures": ["LLaDA2MoeModelLM"],
        "model_type": "llada2_moe",
        "dtype": str(dtype).removeprefix("torch."),
        "hidden_act": "silu",
        "moe_router_enable_expert_bias": True,
        "norm_topk_prob": True,
        "rope_scaling": None,
        "rotary_dim": config.rotary_dim,
        "router_dtype": "fp32",
        "score_function": "sigmoid",
        "tie_word_embeddings": False,
        "use_bias": False,
        "use_qk_norm": True,
        "use_qkv_bias": False,
        "use_sliding_window": False,
    }
