"""A trained model as a checkpoint of its own: LoRA added to the weights, tokenizer beside them."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch

from engine.checkpoint.write import save_checkpoint
from engine.config import read_json
from engine.generate import Engine
from engine.model.transformer import LLaDA2Model
from finetune.adapters import merge_lora

_BESIDE = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
    "special_tokens_map.json",
)  # fmt: skip
_KEPT_KEYS = ("pad_token_id", "eos_token_id", "mask_token_id")


def save_merged(engine: Engine, base: Path, folder: Path) -> None:
    """Merge the engine's LoRA into its weights, in place, and write all of it in the base's dtype.

    Raises OSError.
    """
    merge_lora(engine.model)
    dtype = read_json(base / "config.json").get("dtype", "bfloat16")
    save_whole(engine.model, base, folder, getattr(torch, str(dtype), torch.bfloat16))


def save_whole(model: LLaDA2Model, base: Path, folder: Path, dtype: torch.dtype) -> None:
    """`model` as a checkpoint in an existing `folder`, with the tokenizer of `base`."""
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    extra = {name: config[name] for name in _KEPT_KEYS if name in config}
    if model.residual_adapter is not None:
        extra["residual"] = asdict(model.residual)
    save_checkpoint(model, folder, dtype=dtype, extra_config=extra)
    for name in _BESIDE:
        if (base / name).exists():
            shutil.copy(base / name, folder / name)
