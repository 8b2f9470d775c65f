"""What is trained on top of a loaded model, and the start that it is held against.

LoRA goes over attention, dense layers and shared experts; the residual adapter is trained in full;
everything else stays frozen, bit for bit. `full` trains every weight instead and keeps a frozen
copy, which only a small model can afford. Applying and loading adapters is the engine's.

Left out: LoRA over routed experts, over embeddings and over the head.
"""

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.checkpoint.adapter import (
    LORA_CONFIG,
    LORA_WEIGHTS,
    PEFT_PREFIX,
    RESIDUAL_CONFIG,
    RESIDUAL_WEIGHTS,
)
from engine.checkpoint.names import RESIDUAL_PREFIX
from engine.checkpoint.revision import BASE_FILE
from engine.checkpoint.tensor_writer import save_tensors
from engine.model.lora import LoRALinear, fold_lora, lora_parameters, wrap_linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model
from finetune.config import FinetuneConfig

_ADAPTED = re.compile(
    r"model\.layers\.\d+\.(attention\.(query_key_value|dense)"
    r"|mlp\.(shared_experts\.)?(gate|up|down)_proj)"
)

Parameters = dict[str, nn.Parameter]


@dataclass(frozen=True)
class Trainable:
    """A model made ready to learn.

    Attributes:
        trunk, adapter: what is trained, by name: the two learning rates' groups.
        start_adapter: the residual adapter that the start had, frozen; None if it had none.
        frozen: the start as a model of its own, when the trunk itself is trained.
    """

    model: LLaDA2Model
    trunk: Parameters
    adapter: Parameters
    start_adapter: ResidualAdapter | None
    frozen: LLaDA2Model | None

    @property
    def parameters(self) -> Parameters:
        """All that is trained."""
        return {**self.trunk, **self.adapter}

    @contextmanager
    def start(self) -> Iterator[LLaDA2Model]:
        """The start model: the frozen copy, or this model with what was added switched off."""
        if self.frozen is not None:
            yield self.frozen
            return
        model, adapter = self.model, self.model.residual_adapter
        layers = [module for module in model.modules() if isinstance(module, LoRALinear)]
        scales = [layer.scale for layer in layers]
        model.residual_adapter = self.start_adapter
        for layer in layers:
            layer.scale = 0.0
        try:
            yield model
        finally:
            model.residual_adapter = adapter
            for layer, scale in zip(layers, scales, strict=True):
                layer.scale = scale


def prepare(model: LLaDA2Model, config: FinetuneConfig) -> Trainable:
    """Freeze `model`, add what `config` trains, and make that trainable; in place.

    A model without a residual adapter gets one; like fresh LoRA it changes nothing yet.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(config.seed)
    start_adapter = copy.deepcopy(model.residual_adapter)
    frozen = copy.deepcopy(model) if config.train == "full" else None
    if not config.residual:
        model.residual_adapter = None
    elif model.residual_adapter is None:
        model.residual_adapter = new_adapter(model, config.adapter_width, generator)
    trunk: Parameters = {}
    if config.train == "full":
        trunk = {n: p for n, p in model.named_parameters() if not n.startswith(RESIDUAL_PREFIX)}
    elif config.train == "lora":
        add_lora(model, config.lora_rank, config.lora_alpha, generator)
        trunk = lora_parameters(model)
    adapter = {n: p for n, p in model.named_parameters() if n.startswith(RESIDUAL_PREFIX)}
    for parameter in (*trunk.values(), *adapter.values()):
        parameter.requires_grad_(True)
    return Trainable(model, trunk, adapter, start_adapter, frozen)


def new_adapter(
    model: LLaDA2Model, width: int | None, generator: torch.Generator
) -> ResidualAdapter:
    """A residual adapter for `model` that does nothing yet: its last matrix is zero."""
    table, config = model.embedding_table, model.config
    adapter = ResidualAdapter(config.hidden_size, width or config.hidden_size, config.rms_norm_eps)
    for linear in (adapter.gate_proj, adapter.up_proj):
        assert linear is not None  # the form that is made here has both
        _fill(linear.weight, generator)
    return adapter.to(device=table.device, dtype=table.dtype).requires_grad_(False)


def add_lora(model: LLaDA2Model, rank: int, alpha: float, generator: torch.Generator) -> None:
    """Wrap every adapted linear layer; B is zero, so that nothing changes yet."""
    names = [name for name, _ in model.named_modules() if _ADAPTED.fullmatch(name)]
    for name in names:
        wrapped = wrap_linear(model, name, rank, alpha / rank)
        _fill(wrapped.lora_A.weight, generator)


def _fill(weight: Tensor, generator: torch.Generator) -> None:
    """Uniform in +-1/sqrt(inputs), made on the CPU so that every device starts the same."""
    bound = weight.shape[1] ** -0.5
    values = torch.empty(weight.shape).uniform_(-bound, bound, generator=generator)
    with torch.no_grad():
        weight.copy_(values)


def save_adapter(model: LLaDA2Model, folder: Path, *, alpha: float, base: dict[str, str]) -> None:
    """Write the model's LoRA and residual adapter into an existing `folder`, in the formats that
    `load_adapter` reads; `base` names the "model" and "revision" they belong to. Raises OSError."""
    _write(folder / BASE_FILE, base)
    lora = lora_parameters(model)
    if lora:
        tensors = {f"{PEFT_PREFIX}{name}": _stored(p) for name, p in lora.items()}
        save_tensors(tensors, folder / LORA_WEIGHTS)
        _write(folder / LORA_CONFIG, _peft_config(lora, alpha, base["model"]))
    adapter = model.residual_adapter
    if adapter is not None:
        tensors = {f"{RESIDUAL_PREFIX}{n}": _stored(p) for n, p in adapter.named_parameters()}
        save_tensors(tensors, folder / RESIDUAL_WEIGHTS)
        _write(folder / RESIDUAL_CONFIG, asdict(model.residual))


def _peft_config(lora: Parameters, alpha: float, base: str) -> dict[str, Any]:
    layers = sorted({name.rsplit(".lora_", 1)[0] for name in lora})
    rank = next(p.shape[0] for name, p in lora.items() if name.endswith("lora_A.weight"))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": layers,
        "bias": "none",
        "use_dora": False,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def merge_lora(model: LLaDA2Model) -> None:
    """Add every LoRA product to the weight it adapts and drop it, in place. Raises ValueError where
    that weight is packed."""
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear) and not isinstance(module.base, nn.Linear):
            raise ValueError(
                f"{name} is packed in NVFP4, which LoRA cannot be merged into; "
                "merge with the bf16 checkpoint and quantise the result."
            )
    fold_lora(model, packed=False)


def _stored(parameter: Tensor) -> Tensor:
    return parameter.detach().cpu().contiguous().clone()


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
