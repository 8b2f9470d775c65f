"""Quantised checkpoints of a tiny model in every spelling, made by tests for themselves."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.checkpoint.nvfp4 import NVFP4Tensor, Style, dequantize, quantize
from engine.checkpoint.nvfp4_files import hf_quant_config, is_packed, quantization_config

INPUT_SCALE = 0.01

Chosen = Callable[[str], bool]


def everything(name: str) -> bool:
    return True


def packed_tensors(
    plain: dict[str, Tensor], style: Style, chosen: Chosen = everything, *, inputs: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(the tensors on disk, the weights that they stand for in float32) of a plain checkpoint."""
    stored, values = {}, {}
    for name, tensor in plain.items():
        values[name] = tensor.float()
        if not (is_packed(name, tuple(tensor.shape), experts_only=False) and chosen(name)):
            stored[name] = tensor
            continue
        weight = quantize(tensor, style)
        values[name] = dequantize(weight)
        stored |= spelled(name.removesuffix(".weight"), weight, style, inputs=inputs)
    return stored, values


def spelled(
    stem: str, weight: NVFP4Tensor, style: Style, *, joint: str = ".", inputs: bool = False
) -> dict[str, Tensor]:
    """The tensors of one weight (or stack) under a library's names."""
    if style == "modelopt":
        names = {
            stem if joint == "_" else f"{stem}.weight": weight.packed,
            f"{stem}{joint}weight_scale": weight.scales,
            f"{stem}{joint}weight_scale_2": weight.global_scale,
        }
        if inputs:
            names[f"{stem}{joint}input_scale"] = torch.tensor(INPUT_SCALE)
        return names
    assert weight.divisor is not None
    names = {
        f"{stem}.weight_packed": weight.packed,
        f"{stem}.weight_scale": weight.scales,
        f"{stem}.weight_global_scale": weight.divisor.reshape(-1),
    }
    if inputs:
        names[f"{stem}.input_global_scale"] = torch.tensor([1 / INPUT_SCALE])
    return names


def write(
    folder: Path, source: Path, tensors: dict[str, Tensor], style: Style | None, shards: int = 1
) -> Path:
    """A checkpoint folder: `source`'s small files, `tensors`, and what `style` declares."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.suffix != ".safetensors" and not path.name.endswith("index.json"):
            shutil.copy(path, folder)
    if shards == 1:
        save(tensors, folder / "model.safetensors")
    else:
        weight_map = {name: f"model-{n % shards}.safetensors" for n, name in enumerate(tensors)}
        for file in sorted(set(weight_map.values())):
            save({n: t for n, t in tensors.items() if weight_map[n] == file}, folder / file)
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    if style is not None:
        declare(folder, style)
    return folder


def save(tensors: dict[str, Tensor], file: Path) -> None:
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, file)


def declare(folder: Path, style: Style, left_out: Iterable[str] = ("lm_head",)) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization_config(style, left_out)
    (folder / "config.json").write_text(json.dumps(config))
    if style == "modelopt":
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant_config(left_out)))


def plain_tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))


def rewrite(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = plain_tensors(folder)
    edit(tensors)
    save(tensors, folder / "model.safetensors")
