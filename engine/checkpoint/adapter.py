"""An adapter folder onto a loaded model: LoRA in PEFT's file format, and the residual adapter.

    adapter_config.json, adapter_model.safetensors     LoRA, as PEFT writes it
    residual_config.json, residual_adapter.safetensors the residual adapter and how it is applied

Either pair may be absent, not both.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from engine.checkpoint.load import TensorInfo, report_differences
from engine.config import CheckpointError, ResidualConfig, read_json
from engine.model.lora import lora_parameters, wrap_linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model

LORA_CONFIG, LORA_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
RESIDUAL_CONFIG, RESIDUAL_WEIGHTS = "residual_config.json", "residual_adapter.safetensors"
PEFT_PREFIX = "base_model.model."


def load_adapter(model: LLaDA2Model, directory: str | Path) -> None:
    """Put the adapter in `directory` onto `model`, in place.

    Raises:
        CheckpointError: the folder is no adapter, its tensors do not fit this model, or it uses
            a feature of PEFT that is not plain LoRA on linear layers.
    """
    folder = Path(directory)
    has_lora = (folder / LORA_CONFIG).exists()
    has_residual = (folder / RESIDUAL_WEIGHTS).exists()
    if not (has_lora or has_residual):
        raise CheckpointError(
            f"{folder} holds no adapter ({LORA_CONFIG} or {RESIDUAL_WEIGHTS}); name another folder."
        )
    if has_lora:
        _load_lora(model, folder)
    if has_residual:
        _load_residual(model, folder)
    model.eval().requires_grad_(False)


def _load_lora(model: LLaDA2Model, folder: Path) -> None:
    config = read_json(folder / LORA_CONFIG)
    rank, scale = _lora_scale(config, folder / LORA_CONFIG)
    tensors = {
        name.removeprefix(PEFT_PREFIX): tensor
        for name, tensor in _read(folder / LORA_WEIGHTS).items()
    }
    layers = sorted(
        {name.rsplit(".lora_", 1)[0] for name in tensors if name.endswith(".lora_A.weight")}
    )
    for layer in layers:
        try:
            wrap_linear(model, layer, rank, scale)
        except KeyError as error:
            raise CheckpointError(
                f"{folder / LORA_WEIGHTS} adapts {layer}, which this model has not; "
                "use the adapter with the model it was trained on."
            ) from error
    _copy(lora_parameters(model), tensors, folder / LORA_WEIGHTS)


def _lora_scale(config: dict[str, Any], path: Path) -> tuple[int, float]:
    plain = {"peft_type": "LORA", "use_dora": False, "bias": "none", "fan_in_fan_out": False}
    for name, value in plain.items():
        if config.get(name, value) != value:
            raise CheckpointError(
                f"{path} sets {name} to {config[name]!r}; only plain LoRA ({value!r}) is supported."
            )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise CheckpointError(f"{path} lacks a rank `r` or `lora_alpha`; save the adapter again.")
    return rank, alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _load_residual(model: LLaDA2Model, folder: Path) -> None:
    tensors = _read(folder / RESIDUAL_WEIGHTS)
    try:
        settings = read_json(folder / RESIDUAL_CONFIG)
        residual = ResidualConfig(**settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / RESIDUAL_CONFIG} cannot be used: {error}.") from error
    gate = tensors.get("residual_adapter.gate_proj.weight")
    width = gate.shape[0] if gate is not None and gate.ndim == 2 else 1
    table = model.embedding_table
    adapter = ResidualAdapter(model.config.hidden_size, width, model.config.rms_norm_eps)
    adapter = adapter.to(device=table.device, dtype=table.dtype)
    names = {f"residual_adapter.{name}": p for name, p in adapter.named_parameters()}
    _copy(names, tensors, folder / RESIDUAL_WEIGHTS)
    model.residual_adapter, model.residual = adapter, residual


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; save or copy the adapter again.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a safetensors file ({error}); copy it again."
        ) from error


def _copy(targets: dict[str, torch.nn.Parameter], tensors: dict[str, Tensor], source: Path) -> None:
    wanted = {name: tuple(parameter.shape) for name, parameter in targets.items()}
    found = {name: TensorInfo(source, "", tuple(t.shape)) for name, t in tensors.items()}
    report_differences(wanted, found, str(source))
    with torch.no_grad():
        for name, parameter in targets.items():
            if not torch.isfinite(tensors[name]).all():
                raise CheckpointError(f"{source}: {name} holds values that are not finite.")
            parameter.copy_(tensors[name])
