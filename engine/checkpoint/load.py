"""config.json and safetensors to a model on a device.

Names and shapes are compared with the model's before any memory is taken, and one error lists
all that is wrong; then the tensors stream, one at a time, into their final places.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.checkpoint.names import RESIDUAL_PREFIX, model_tensors, places
from engine.config import CheckpointError, ModelConfig, read_json
from engine.model.moe import Router
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model

__all__ = ["CheckpointError", "Progress", "TensorInfo", "load_model", "read_headers"]

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

_DTYPES = {"BF16": 2, "F16": 2, "F32": 4}
_SHOWN = 5


@dataclass(frozen=True)
class TensorInfo:
    """What a safetensors header says of one tensor; `dtype` in safetensors' words."""

    file: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        count = 1
        for size in self.shape:
            count *= size
        return count * _DTYPES[self.dtype]


def load_model(
    directory: str | Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> LLaDA2Model:
    """Load the checkpoint in `directory`: bf16, f16 or f32 safetensors, sharded or not.

    Weights become `dtype` whatever the file's; router biases float32. A residual adapter among
    the tensors is attached.

    Raises:
        CheckpointError: naming the file, and every tensor that is missing, unexpected, of another
            shape, or of a dtype that is none of the three; or a weight that is not finite in
            `dtype`.
    """
    folder = Path(directory)
    config = _read_config(folder)
    headers = read_headers(folder)
    try:
        with torch.device("meta"):
            model = LLaDA2Model(config)
            attach_residual_adapter(model, headers)
    except RuntimeError as error:  # sizes whose product no longer fits 64 bits
        raise CheckpointError(
            f"{folder / 'config.json'} describes tensors beyond any memory; download it again."
        ) from error
    model = model.to(dtype)
    for module in model.modules():
        if isinstance(module, Router):
            module.expert_bias = module.expert_bias.float()
    _compare(model, headers, folder)
    _allocate(model, device)
    _fill(model, headers, progress)
    return model.eval().requires_grad_(False)


def _read_config(folder: Path) -> ModelConfig:
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; name one that holds a checkpoint.")
    data = read_json(folder / "config.json")
    if data.get("quantization_config") or (folder / "hf_quant_config.json").exists():
        raise CheckpointError(
            f"{folder} holds quantised weights, which this version cannot read; "
            "use the bf16 checkpoint of the same model."
        )
    return ModelConfig.from_dict(data, source=str(folder / "config.json"))


def read_headers(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of the folder's safetensors files by name; no weight is read.

    Raises CheckpointError for a missing, truncated or foreign file, a dtype that no weight of
    ours has, or a name that stands in two files.
    """
    headers: dict[str, TensorInfo] = {}
    for file in _weight_files(folder):
        for name, info in _read_header(file):
            if name in headers:
                raise CheckpointError(
                    f"{name} stands in both {headers[name].file.name} and {file.name}; "
                    f"remove from {folder} the file that is not the checkpoint's."
                )
            headers[name] = info
    return headers


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index} has no weight_map; download it again.")
        names = sorted({str(name) for name in weight_map.values()})
        # An index is data from outside: its names stay inside the folder.
        if any(Path(name).name != name for name in names):
            raise CheckpointError(f"{index} names a file outside its folder; do not use it.")
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(
                f"{folder} holds no .safetensors file; name a folder that holds a checkpoint."
            )
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file} is missing; download the checkpoint again.")
    return files


def _read_header(file: Path) -> Iterator[tuple[str, TensorInfo]]:
    try:
        with safe_open(file, framework="pt") as reader:
            names = list(reader.keys())
            for name in names:
                part = reader.get_slice(name)
                info = TensorInfo(file, part.get_dtype(), tuple(part.get_shape()))
                if info.dtype not in _DTYPES:
                    raise CheckpointError(
                        f"{file}: {name} is {info.dtype}; weights must be BF16, F16 or F32, "
                        "so use another release of this model."
                    )
                yield name, info
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{file} is damaged or not a safetensors file ({error}); download it again."
        ) from error


def attach_residual_adapter(model: LLaDA2Model, headers: dict[str, TensorInfo]) -> None:
    """Give `model` an empty residual adapter of the width that `headers` show, if they hold one."""
    gate = headers.get(f"{RESIDUAL_PREFIX}gate_proj.weight")
    if gate is not None and len(gate.shape) == 2:
        config = model.config
        model.residual_adapter = ResidualAdapter(
            config.hidden_size, gate.shape[0], config.rms_norm_eps
        )


def _compare(model: LLaDA2Model, headers: dict[str, TensorInfo], folder: Path) -> None:
    tensors = model_tensors(model)
    wanted = {name: tuple(place.view(tensors).shape) for name, place in places(model).items()}
    report_differences(wanted, headers, str(folder))


def report_differences(
    wanted: dict[str, tuple[int, ...]], found: dict[str, TensorInfo], source: str
) -> None:
    """One CheckpointError that lists what is missing, unexpected or misshapen; or nothing."""
    missing = [name for name in wanted if name not in found]
    unexpected = [
        f"{name} {list(info.shape)}" for name, info in found.items() if name not in wanted
    ]
    misshapen = [
        f"{name} is {list(found[name].shape)} instead of {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name].shape != shape
    ]
    problems = [
        f"{len(items)} {kind}: {', '.join(items[:_SHOWN])}{', …' if len(items) > _SHOWN else ''}"
        for kind, items in (
            ("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen)
        )
        if items
    ]  # fmt: skip
    if problems:
        raise CheckpointError(
            f"{source} does not hold the tensors that its config describes "
            f"({'; '.join(problems)}). Download it again, or check that both belong together."
        )


def _allocate(model: LLaDA2Model, device: torch.device) -> None:
    """Memory on `device` for what was only described. Not Module.to_empty: for tensors on the
    meta device that makes torch import its compiler's algebra, and a start a second longer."""
    empty = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(empty, assign=True)


def _fill(model: LLaDA2Model, headers: dict[str, TensorInfo], progress: Progress | None) -> None:
    tensors, table = model_tensors(model), places(model)
    total, done = sum(info.nbytes for info in headers.values()), 0
    for name, info, tensor in _stream(headers):
        place = table[name].view(tensors)
        place.copy_(tensor)
        if not torch.isfinite(place).all():
            raise CheckpointError(
                f"{info.file}: {name} holds values that are not finite in "
                f"{str(place.dtype).removeprefix('torch.')}; download it again."
            )
        done += info.nbytes
        if progress is not None:
            progress(done, total)


def _stream(headers: dict[str, TensorInfo]) -> Iterator[tuple[str, TensorInfo, Tensor]]:
    """The tensors, file by file, one in memory at a time."""
    by_file: dict[Path, list[str]] = {}
    for name, info in headers.items():
        by_file.setdefault(info.file, []).append(name)
    for file, names in by_file.items():
        try:
            with safe_open(file, framework="pt") as reader:
                for name in names:
                    yield name, headers[name], reader.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{file} cannot be read to its end ({error}); download it again."
            ) from error


def read_special_ids(folder: Path, vocab_size: int) -> tuple[int | None, tuple[int, ...]]:
    """(mask id, stop ids) as far as generation_config.json and config.json tell.

    Raises CheckpointError for what is no token of the vocabulary, or both mask and stop.
    """
    generation: dict = {}
    if (folder / "generation_config.json").exists():
        generation = read_json(folder / "generation_config.json")
    config = read_json(folder / "config.json")
    mask = generation.get("mask_token_id", config.get("mask_token_id"))
    stops = generation.get("eos_token_id", config.get("eos_token_id", config.get("pad_token_id")))
    stops = stops if isinstance(stops, list) else [] if stops is None else [stops]
    named = [*stops, *([] if mask is None else [mask])]
    if not all(type(id) is int and 0 <= id < vocab_size for id in named) or mask in stops:
        raise CheckpointError(
            f"{folder}: the configs name {json.dumps(mask)} as the mask and {json.dumps(stops)} as "
            f"end tokens; they must differ and be whole numbers below {vocab_size:,}."
        )
    return mask, tuple(stops)
