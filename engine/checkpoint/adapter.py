"""An adapter folder onto a loaded model: LoRA in PEFT's file format, and the residual adapter.

    adapter_config.json, adapter_model.safetensors     LoRA, as PEFT writes it
    residual_config.json, residual_adapter.safetensors the residual adapter and how it is applied

Either pair may be absent, not both.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from engine.checkpoint.differences import report_differences
from engine.checkpoint.names import RESIDUAL_PREFIX
from engine.checkpoint.revision import check_base
from engine.checkpoint.tensor_file import TensorInfo
from engine.config import CheckpointError, ResidualConfig, read_json
from engine.model.lora import LoRALinear, fold_lora, wrap_linear
from engine.model.quantised import NVFP4Linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model

LORA_CONFIG, LORA_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
RESIDUAL_CONFIG, RESIDUAL_WEIGHTS = "residual_config.json", "residual_adapter.safetensors"
PEFT_PREFIX = "base_model.model."

# What PEFT may set that changes what a layer computes, with the values that leave LoRA plain.
_PLAIN: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "alora_invocation_tokens": (None,),
}


def apply_adapter(model: LLaDA2Model, directory: str | Path, base: Path) -> None:
    """Put an adapter that was made for the checkpoint in `base` onto `model`, to answer with: LoRA
    becomes part of the weights, in place; not of packed ones on a CPU, where they stay packed.

    Raises CheckpointError: the adapter is another checkpoint's, or cannot be used.
    """
    check_base(directory, base)
    load_adapter(model, directory)
    fold_lora(model, packed=model.embedding_table.device.type != "cpu")


def load_adapter(model: LLaDA2Model, directory: str | Path) -> None:
    """Put the adapter in `directory` onto `model`, in place; a failure leaves it as it was.

    Raises:
        CheckpointError: the folder is no adapter, its tensors do not fit this model, or it uses
            a feature of PEFT that is not plain LoRA on linear layers.
    """
    folder = Path(directory)
    has_lora = any((folder / name).exists() for name in (LORA_CONFIG, LORA_WEIGHTS))
    has_residual = any((folder / name).exists() for name in (RESIDUAL_CONFIG, RESIDUAL_WEIGHTS))
    if not (has_lora or has_residual):
        raise CheckpointError(
            f"{folder} holds no adapter ({LORA_CONFIG} or {RESIDUAL_WEIGHTS}); name another folder."
        )
    lora = _read_lora(model, folder) if has_lora else None
    residual = _read_residual(model, folder) if has_residual else None
    if lora is not None:
        lora.wrap(model)
    if residual is not None:
        model.residual_adapter, model.residual = residual
    model.eval().requires_grad_(False)


@dataclass(frozen=True)
class _LoRA:
    """Checked matrices, by the names of `layers` in the model."""

    rank: int
    scale: float
    layers: list[str]
    tensors: dict[str, Tensor]

    def wrap(self, model: LLaDA2Model) -> None:
        for layer in self.layers:
            wrapped = wrap_linear(model, layer, self.rank, self.scale)
            with torch.no_grad():
                wrapped.lora_A.weight.copy_(self.tensors[f"{layer}.lora_A.weight"])
                wrapped.lora_B.weight.copy_(self.tensors[f"{layer}.lora_B.weight"])


def _read_lora(model: LLaDA2Model, folder: Path) -> _LoRA:
    path = folder / LORA_WEIGHTS
    rank, scale = _lora_scale(read_json(folder / LORA_CONFIG), folder / LORA_CONFIG)
    tensors = {name.removeprefix(PEFT_PREFIX): tensor for name, tensor in _read(path).items()}
    layers = sorted(
        {name.rsplit(".lora_", 1)[0] for name in tensors if name.endswith(".lora_A.weight")}
    )
    wanted: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        linear = _linear(model, layer, path)
        wanted[f"{layer}.lora_A.weight"] = (rank, linear.in_features)
        wanted[f"{layer}.lora_B.weight"] = (linear.out_features, rank)
    _check(wanted, tensors, path)
    return _LoRA(rank, scale, layers, tensors)


def _lora_scale(config: dict[str, Any], path: Path) -> tuple[int, float]:
    for name, plain in _PLAIN.items():
        if config.get(name, plain[0]) not in plain:
            raise CheckpointError(
                f"{path} sets {name} to {config[name]!r}; only plain LoRA ({plain[0]!r}) is "
                "supported."
            )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or not 1 <= rank <= 1 << 16:
        raise CheckpointError(f"{path} has no usable rank `r`; save the adapter again.")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) < 1e300:
        raise CheckpointError(f"{path} has no usable `lora_alpha`; save the adapter again.")
    return rank, alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _linear(model: LLaDA2Model, layer: str, path: Path) -> nn.Linear | NVFP4Linear:
    """The layer that is to be adapted."""
    try:
        module = model.get_submodule(layer)
    except AttributeError:
        module = None
    if isinstance(module, LoRALinear):
        raise CheckpointError(
            f"{path} adapts {layer}, which has an adapter already; load the model again first."
        )
    if not isinstance(module, nn.Linear | NVFP4Linear):
        raise CheckpointError(
            f"{path} adapts {layer}, which this model has not; "
            "use the adapter with the model it was trained on."
        )
    return module


def _read_residual(model: LLaDA2Model, folder: Path) -> tuple[ResidualAdapter, ResidualConfig]:
    path = folder / RESIDUAL_WEIGHTS
    tensors = _read(path)
    try:
        residual = ResidualConfig(**read_json(folder / RESIDUAL_CONFIG))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / RESIDUAL_CONFIG} cannot be used: {error}.") from error
    down = tensors.get(f"{RESIDUAL_PREFIX}down_proj.weight")
    width = down.shape[1] if down is not None and down.ndim == 2 else 1
    table = model.embedding_table
    adapter = ResidualAdapter.from_config(
        model.config.hidden_size, width, model.config.rms_norm_eps, residual
    )
    adapter = adapter.to(device=table.device, dtype=table.dtype)
    names = {f"{RESIDUAL_PREFIX}{name}": p for name, p in adapter.named_parameters()}
    _check({name: tuple(p.shape) for name, p in names.items()}, tensors, path)
    with torch.no_grad():
        for name, parameter in names.items():
            parameter.copy_(tensors[name])
    return adapter, residual


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; save or copy the adapter again.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a safetensors file ({error}); copy it again."
        ) from error


def _check(wanted: dict[str, tuple[int, ...]], tensors: dict[str, Tensor], source: Path) -> None:
    """Names, shapes and values, before anything is changed."""
    found = {name: TensorInfo(source, "", tuple(t.shape)) for name, t in tensors.items()}
    report_differences(wanted, found, str(source))
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise CheckpointError(
                f"{source}: {name} is {str(tensor.dtype).removeprefix('torch.')}; weights must be "
                "bfloat16, float16 or float32."
            )
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"{source}: {name} holds values that are not finite.")
