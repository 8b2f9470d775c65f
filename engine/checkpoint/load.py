"""config.json and safetensors to a model on a device.

Names, shapes and kinds are compared with the model's before any memory is taken, and one error
lists all that is wrong; then the tensors stream into their final places (`fill.py`).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil
import torch
from torch import nn

from engine.checkpoint.declared import Declared, is_kv_cache_scale, read_declared, refuse_foreign
from engine.checkpoint.differences import report_differences
from engine.checkpoint.fill import Filler, Progress
from engine.checkpoint.names import RESIDUAL_PREFIX, Place
from engine.checkpoint.residual_map import MAP_FILE, Adapter, find_adapter
from engine.checkpoint.stored import Layout, Move, Weight, lay_out
from engine.checkpoint.tensor_file import FLOATS, TensorInfo, read_header
from engine.config import CheckpointError, ModelConfig, read_json
from engine.model.moe import Router
from engine.model.quantised import NVFP4Experts, NVFP4Linear, packed_modules, share_cache
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model

__all__ = ["CheckpointError", "Progress", "TensorInfo", "load_model", "read_headers"]

Activations = Literal["auto", "bf16", "nvfp4"]
"""Arithmetic of quantised weights: with activations as they are (bf16: W4A16), rounded to NVFP4
(nvfp4: W4A4), or (auto) as the checkpoint declares, but never rounded on a CPU."""

# Memory for unpacked weights on a CPU: at most this much, and this part of what is free.
_CACHE_BYTES, _CACHE_SHARE = 4 << 30, 0.25


def load_model(
    directory: str | Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    activations: Activations = "auto",
    residual_map: str | Path | None = None,
    cache_bytes: int | None = None,
    room: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> LLaDA2Model:
    """Load the checkpoint in `directory`: safetensors, sharded or not, plain or NVFP4.

    Plain weights (bf16, f16, f32) become `dtype` whatever the file's; router biases float32. NVFP4
    weights stay packed; on a CPU at most `cache_bytes` (None: a share of the free memory) of them
    are also kept unpacked. A residual adapter among the tensors is attached, found as
    `residual_map.py` says. `room` is called before memory is taken for a checkpoint that is in
    order, and may refuse.

    Raises:
        CheckpointError: naming the file, and every tensor that is missing, unexpected, of another
            shape or of another kind; or a weight that is not finite in `dtype`; or a quantisation
            that is not NVFP4.
    """
    folder = Path(directory)
    config, declared = _read_config(folder)
    headers = read_headers(folder)
    refuse_foreign(headers)
    _check_extent(config, headers, folder)
    with _described(folder):
        model = LLaDA2Model(config)
    layout = lay_out(model, headers)
    wanted = _attach_adapter(model, layout, headers, folder, residual_map)
    report_differences(layout.expected, wanted, str(folder), "config.json")
    _check_kinds(layout, headers)
    if room is not None:
        room()
    _pack(model, layout)
    model = model.to(dtype)
    for module in model.modules():
        if isinstance(module, Router):
            module.expert_bias = module.expert_bias.float()
    _allocate(model, device)
    Filler(model, layout, headers).run(progress)
    _set_activations(model, activations, declared, folder)
    if device.type == "cpu":
        share_cache(model, _cache_budget() if cache_bytes is None else cache_bytes)
    return model.eval().requires_grad_(False)


@contextmanager
def _described(folder: Path) -> Iterator[None]:
    """Inside, modules have shapes and no memory."""
    try:
        with torch.device("meta"):
            yield
    except RuntimeError as error:  # sizes whose product no longer fits 64 bits
        raise CheckpointError(
            f"{folder / 'config.json'} describes tensors beyond any memory; download it again."
        ) from error


def _read_config(folder: Path) -> tuple[ModelConfig, Declared]:
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; name one that holds a checkpoint.")
    data = read_json(folder / "config.json")
    declared = read_declared(data, folder)
    return ModelConfig.from_dict(data, source=str(folder / "config.json")), declared


def read_headers(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of the folder's safetensors files by name; no weight is read.

    Raises CheckpointError for a missing, truncated or foreign file, or a name that stands in two
    files.
    """
    headers: dict[str, TensorInfo] = {}
    for file in _weight_files(folder):
        for name, info in read_header(file).items():
            if name in headers:
                raise CheckpointError(
                    f"{name} stands in both {headers[name].file.name} and {file.name}; "
                    f"remove from {folder} the file that is not the checkpoint's."
                )
            headers[name] = info
    return headers


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(
                f"{folder} holds no .safetensors file; name a folder that holds a checkpoint."
            )
        return files
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map; download it again.")
    names = sorted({str(name) for name in weight_map.values()})
    # An index is data from outside: its names stay inside the folder.
    if any(Path(name).name != name for name in names):
        raise CheckpointError(f"{index} names a file outside its folder; do not use it.")
    if not all(_could_hold_weights(name) for name in names):
        raise CheckpointError(f"{index} names what is no .safetensors file; download it again.")
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing; download the checkpoint again.")
    return [folder / name for name in names]


def _could_hold_weights(name: str) -> bool:
    return name.endswith(".safetensors") and name.isprintable() and len(name) <= 255


def _check_extent(config: ModelConfig, headers: dict[str, TensorInfo], folder: Path) -> None:
    """A config of far more tensors than there are would take long to disprove one by one.

    Stacked experts need six tensors a layer at least, experts of their own three each.
    """
    stacked = not any(_EXPERT.search(name) for name in headers)
    experts = 0 if stacked else 3 * config.num_experts
    routed = max(config.num_hidden_layers - config.first_k_dense_replace, 0)
    needed = 6 * config.num_hidden_layers + experts * routed
    if needed > _FAR_MORE * len(headers) + _FAR_MORE:
        raise CheckpointError(
            f"{folder} does not hold the tensors that config.json describes ({len(headers):,} "
            f"instead of at least {needed:,}). Download it again, or check that both belong "
            "together."
        )


_EXPERT = re.compile(r"\.mlp\.experts\.\d+\.")
_FAR_MORE = 20


def _attach_adapter(
    model: LLaDA2Model,
    layout: Layout,
    headers: dict[str, TensorInfo],
    folder: Path,
    residual_map: str | Path | None,
) -> dict[str, TensorInfo]:
    """Give `model` the residual adapter that `headers` hold, if any, and `layout` its tensors.

    Returns those of `headers` that must be in the layout.
    """
    idle = is_kv_cache_scale(headers)
    left = {n: i for n, i in headers.items() if n not in layout.moves and n not in idle}
    beside = folder / MAP_FILE
    given = Path(residual_map) if residual_map is not None else beside if beside.exists() else None
    config = model.config
    missing = [name for name in layout.expected if name not in headers]
    if missing and given is None and not any(n.startswith(RESIDUAL_PREFIX) for n in left):
        left = {}  # the trunk itself is in disorder: one error tells of that and of the rest
    found = find_adapter(left, config.hidden_size, config.residual, given)
    if found is None:
        return {n: i for n, i in headers.items() if n not in idle}
    _add_adapter(model, layout, found, folder)
    return {n: i for n, i in headers.items() if n not in idle and n not in found.unused}


def _add_adapter(model: LLaDA2Model, layout: Layout, found: Adapter, folder: Path) -> None:
    with _described(folder):
        adapter = ResidualAdapter.from_config(
            model.config.hidden_size, found.width, model.config.rms_norm_eps, found.config
        )
    model.residual_adapter, model.residual = adapter, found.config
    for part, parameter in adapter.named_parameters():
        name = found.tensors[part]
        layout.expected[name] = tuple(parameter.shape)
        layout.moves[name] = Move("copy", Place(f"{RESIDUAL_PREFIX}{part}"), Weight(name))


def _check_kinds(layout: Layout, headers: dict[str, TensorInfo]) -> None:
    """Every tensor is of a dtype that its role can have."""
    for name, move in layout.moves.items():
        info, weight = headers[name], move.weight
        allowed: tuple[str, ...]
        if not weight.packed:
            allowed, what = FLOATS, "weights must be BF16, F16 or F32"
        elif name == weight.values:
            allowed, what = ("U8",), "packed codes must be U8"
        elif name == weight.scales:
            allowed, what = ("F8_E4M3",), "NVFP4's block scales must be F8_E4M3"
        else:
            allowed, what = FLOATS, "global scales must be F32"
        if info.dtype not in allowed:
            raise CheckpointError(
                f"{info.file}: {name} is {info.dtype}; {what}, so use another release of this "
                "model."
            )


def _pack(model: LLaDA2Model, layout: Layout) -> None:
    """Replace the modules that stay packed."""
    for name, has_inputs in layout.packed.items():
        module: nn.Module
        with torch.device("meta"):
            if name.endswith(".experts"):
                module = NVFP4Experts(model.config, has_input_scales=has_inputs)
            else:
                rows, columns = model.get_parameter(f"{name}.weight").shape
                module = NVFP4Linear(columns, rows, has_input_scale=has_inputs)
        model.set_submodule(name, module)


def _allocate(model: LLaDA2Model, device: torch.device) -> None:
    """Memory on `device` for what was only described. Not Module.to_empty: for tensors on the
    meta device that makes torch import its compiler's algebra, and a start a second longer."""
    empty = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(empty, assign=True)


def _set_activations(
    model: LLaDA2Model, activations: Activations, declared: Declared, folder: Path
) -> None:
    """Round activations or not; a model of plain weights has none that could be rounded."""
    modules = list(packed_modules(model))
    on_gpu = model.embedding_table.device.type != "cpu"
    rounded = activations == "nvfp4" or (activations == "auto" and on_gpu and declared.activations)
    if activations == "nvfp4" and modules and not any(m.has_input_scales for m in modules):
        raise CheckpointError(
            f"{folder} holds no scales for activations, so they cannot be rounded to NVFP4; "
            "choose activations 'bf16'."
        )
    for module in modules:
        module.quantize_inputs = rounded


def _cache_budget() -> int:
    return min(_CACHE_BYTES, int(psutil.virtual_memory().available * _CACHE_SHARE))
