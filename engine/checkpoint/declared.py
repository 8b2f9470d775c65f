"""What a checkpoint says of its own quantisation, and which kinds of it are refused by name.

config.json's `quantization_config` and ModelOpt's hf_quant_config.json say which method wrote the
weights and whether activations were meant to be quantised as well. Which weights are packed is read
off the tensors (`stored.py`): a list of excluded modules cannot disagree with them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint.tensor_file import TensorInfo
from engine.config import CheckpointError, read_json
from engine.kernels.nvfp4_reference import BLOCK

HF_QUANT_CONFIG = "hf_quant_config.json"

# ModelOpt's algorithms that are NVFP4 and nothing else, and whether activations are quantised.
_MODELOPT = {"NVFP4": True, "W4A16_NVFP4": False}
_MODELOPT_NAMES = {
    "NVFP4_AWQ": "NVFP4 with AWQ's pre_quant_scale",
    "NVFP4_SVD": "NVFP4 with SVDQuant's pre_quant_scale",
    "W4A16_AWQ": "AWQ",
    "W4A8_AWQ": "AWQ",
}
_PACKED_FORMAT = "nvfp4-pack-quantized"

# Suffixes of tensors that only other methods write.
_FOREIGN = {
    ".pre_quant_scale": "AWQ (pre_quant_scale)",
    ".svdquant_lora_a": "SVDQuant",
    ".svdquant_lora_b": "SVDQuant",
    ".weight_zero_point": "asymmetric quantisation (zero points)",
    ".input_zero_point": "asymmetric quantisation (zero points)",
    ".qzeros": "GPTQ or AWQ",
    ".qweight": "GPTQ or AWQ",
    ".g_idx": "GPTQ",
    ".weight_g_idx": "GPTQ",
    ".weight_shape": "whole-number packing (pack-quantized)",
    ".weight_scale_inv": "FP8 in blocks",
    "_blocks": "MXFP4",
}
_FOREIGN_DTYPES = {
    "F8_E4M3": "FP8", "F8_E5M2": "FP8", "F8_E4M3FNUZ": "FP8", "F8_E5M2FNUZ": "FP8",
    "F8_E8M0": "MXFP4 or MXFP8", "F4": "MXFP4", "I8": "8-bit whole numbers",
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """Who wrote the quantised weights (None: nobody says so), and whether activations are meant
    to be NVFP4 too (W4A4) where their scales are given."""

    method: str | None = None
    activations: bool = True


def read_declared(config: dict[str, Any], folder: Path) -> Declared:
    """What config.json (its content: `config`) and hf_quant_config.json of `folder` declare.

    Raises CheckpointError for a method that is not NVFP4, or files that contradict each other.
    """
    source = folder / "config.json"
    inside = config.get("quantization_config") or {}
    if not isinstance(inside, dict):
        raise CheckpointError(f"{source}: quantization_config is no table; download it again.")
    beside: Any = None
    if (folder / HF_QUANT_CONFIG).exists():
        beside = read_json(folder / HF_QUANT_CONFIG).get("quantization")
        if not isinstance(beside, dict):
            raise CheckpointError(
                f"{folder / HF_QUANT_CONFIG} does not say how the weights are quantised; download "
                "it again."
            )
    if not inside and beside is None:
        return Declared()
    method = str(inside.get("quant_method", "modelopt")).lower()
    if method.startswith("modelopt"):
        return _modelopt(inside, beside, folder)
    if method == "compressed-tensors" and beside is None:
        return _compressed_tensors(inside, source)
    raise _refused(source, method.upper() if beside is None else "more than one method")


def refuse_foreign(headers: dict[str, TensorInfo]) -> None:
    """Raise CheckpointError if a tensor gives away a method that is not NVFP4."""
    foreign = tuple(_FOREIGN)
    for name, info in headers.items():
        if name.endswith(foreign):
            method = next(m for suffix, m in _FOREIGN.items() if name.endswith(suffix))
            raise _refused(f"{info.file}: {name}", method)
        if name.endswith(".weight") and info.dtype in _FOREIGN_DTYPES:
            raise _refused(f"{info.file}: {name}", _FOREIGN_DTYPES[info.dtype])
        if name.endswith("weight_scale") and info.dtype in ("U8", "F8_E8M0"):
            raise _refused(f"{info.file}: {name}", "MXFP4 or MXFP8 (power-of-two scales)")


def _modelopt(inside: dict[str, Any], beside: dict[str, Any] | None, folder: Path) -> Declared:
    algorithms = [
        (config.get("quant_algo"), config, source)
        for config, source in ((inside, "config.json"), (beside, HF_QUANT_CONFIG))
        if config and config.get("quant_algo") is not None
    ]
    if len({str(name) for name, _, _ in algorithms}) > 1:
        said = " and ".join(f"{name} in {source}" for name, _, source in algorithms)
        raise CheckpointError(f"{folder} is {said}; download both files again.")
    if not algorithms:
        return Declared("modelopt") if inside else Declared()
    activations = False
    for name, config, source in algorithms:
        for algorithm, group in _algorithms(name, config, folder / source):
            if algorithm not in _MODELOPT:
                raise _refused(folder / source, _MODELOPT_NAMES.get(algorithm, algorithm))
            _check_group(group, folder / source)
            activations = activations or _MODELOPT[algorithm]
    return Declared("modelopt", activations)


def _algorithms(name: Any, config: dict[str, Any], source: Path) -> Iterator[tuple[str, Any]]:
    """(algorithm, group size) of every kind of layer."""
    if name != "MIXED_PRECISION":
        yield str(name), config.get("group_size")
        return
    layers = config.get("quantized_layers")
    if not isinstance(layers, dict) or not all(isinstance(v, dict) for v in layers.values()):
        raise CheckpointError(f"{source}: quantized_layers is no table; download it again.")
    for layer in layers.values():
        yield str(layer.get("quant_algo")), layer.get("group_size")


def _check_group(size: Any, source: Path) -> None:
    # 0 stands for "not told" in some files.
    if size not in (None, 0, BLOCK):
        raise CheckpointError(
            f"{source}: the group size is {size!r}; NVFP4 has {BLOCK}, so this is another format."
        )


def _compressed_tensors(config: dict[str, Any], source: Path) -> Declared:
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
        raise CheckpointError(f"{source}: config_groups is no table; download it again.")
    formats = {str(g.get("format") or config.get("format")) for g in groups.values()}
    for name in formats - {_PACKED_FORMAT}:
        raise _refused(source, name)
    if config.get("transform_config"):
        raise _refused(source, "rotations (transform_config)")
    if config.get("sparsity_config") and not _is_dense(config["sparsity_config"]):
        raise _refused(source, "sparsity (sparsity_config)")
    for group in groups.values():
        _check_arguments(group.get("weights"), source, "weights")
        if group.get("input_activations") is not None:
            _check_arguments(group["input_activations"], source, "activations")
    return Declared(
        "compressed-tensors", any(g.get("input_activations") is not None for g in groups.values())
    )


def _check_arguments(arguments: Any, source: Path, what: str) -> None:
    """Raise CheckpointError unless these are the arguments of NVFP4."""
    if not isinstance(arguments, dict):
        raise CheckpointError(f"{source} does not describe its {what}; download it again.")
    if arguments.get("symmetric") is False:
        raise _refused(source, f"asymmetric quantisation (zero points) of {what}")
    kind = (arguments.get("num_bits"), arguments.get("type"), arguments.get("group_size"))
    if kind != (4, "float", BLOCK):
        raise _refused(source, f"{kind[0]}-bit {kind[1]} in groups of {kind[2]} for {what}")


def _is_dense(sparsity: Any) -> bool:
    return isinstance(sparsity, dict) and sparsity.get("format", "dense") == "dense"


def _refused(source: object, method: str) -> CheckpointError:
    return CheckpointError(
        f"{source} is quantised by {method}; orl-chat reads NVFP4 (ModelOpt or compressed-tensors) "
        "and bf16, so use such a release of this model."
    )


def is_kv_cache_scale(names: Iterable[str]) -> set[str]:
    """Those of `names` that scale a quantised KV cache: it stays unquantised here, which is only
    more exact, so they are known and not used."""
    return {name for name in names if name.endswith((".k_scale", ".v_scale"))}
