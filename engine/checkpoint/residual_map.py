"""Which tensors of a checkpoint are its residual adapter: by our names, by shape, or by a map.

Names and shape of the published adapter are not public. Our own has fixed names (below
`residual_adapter.`). Other tensors are taken for an adapter when all that is left over makes
exactly one plain form, with or without a norm (a vector [d]); the roles of matrices that shapes do
not tell apart are told by their names (gate, up, down and the like) or not at all:

    [d, d]                          linear      g = W n
    [w, d], [d, w]                  mlp         g = down(act(up(n)))
    two of [w, d], one of [d, w]    gated_mlp   g = down(act(gate(n)) * up(n))

Anything else needs a map: a file given with --residual-map, or residual_map.toml in the folder.

    form = "gated_mlp"          # or "mlp", "linear"
    activation = "silu"         # or "gelu", "relu", "none"; the default is silu
    alpha = 1.0                 # a number, or the name of a tensor that holds one
    temperature = 1.0
    top_k = 64                  # absent: the whole vocabulary
    unused = ["value_head.weight"]   # tensors that the forward pass does without

    [tensors]                   # our part = the checkpoint's tensor
    norm = "z_adapter.norm.weight"   # absent: no norm
    gate = "z_adapter.w1"
    up = "z_adapter.w3"
    down = "z_adapter.w2"
"""

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.checkpoint.names import RESIDUAL_PREFIX
from engine.checkpoint.tensor_file import FLOATS, TensorFile, TensorInfo
from engine.config import CheckpointError, ResidualConfig

MAP_FILE = "residual_map.toml"

PARTS = {"linear": ("down",), "mlp": ("up", "down"), "gated_mlp": ("gate", "up", "down")}
"""The matrices of each form, in our words."""

_NAMES = {"norm": "norm", "gate": "gate_proj", "up": "up_proj", "down": "down_proj"}

# Words in a tensor's name that tell its role; those of the second line where there is no gate.
_WORDS: dict[str, dict[str, set[str]]] = {
    "gated_mlp": {"gate": {"gate", "w1"}, "up": {"up", "w3"}, "down": {"down", "w2", "out"}},
    "mlp": {"up": {"up", "in", "fc1", "w1", "0"}, "down": {"down", "out", "fc2", "w2", "1", "2"}},
    "linear": {"down": set()},
}
_SHOWN = 12


@dataclass(frozen=True)
class Adapter:
    """A residual adapter among the tensors of a checkpoint: our name of each part (below
    `residual_adapter.`) to the checkpoint's, and how it is applied."""

    tensors: dict[str, str]
    config: ResidualConfig
    width: int
    unused: tuple[str, ...] = ()


def find_adapter(
    left: dict[str, TensorInfo],
    hidden: int,
    config: ResidualConfig | None,
    map_file: Path | None,
) -> Adapter | None:
    """The adapter in `left`, the tensors of a checkpoint that are not the trunk's.

    `config` is what config.json says of it. Raises CheckpointError for tensors that cannot be
    placed, listing them, and for a map that does not fit.
    """
    if map_file is not None:
        return _mapped(map_file, left, hidden)
    if not left:
        return None
    settings = config or ResidualConfig()
    if any(name.startswith(RESIDUAL_PREFIX) for name in left):
        return _own(left, settings)
    found = _recognised(left, hidden)
    if found is None:
        raise CheckpointError(_unplaceable(left))
    form, tensors = found
    return _adapter(tensors, replace(settings, form=form, norm="norm" in tensors), left)


def _own(left: dict[str, TensorInfo], config: ResidualConfig) -> Adapter:
    """The adapter under our names; whether they are all there is compared with everything else."""
    roles = (*(("norm",) if config.norm else ()), *PARTS[config.form])
    tensors = {role: f"{RESIDUAL_PREFIX}{_NAMES[role]}.weight" for role in roles}
    return _adapter(tensors, config, left)


def _adapter(
    tensors: dict[str, str],
    config: ResidualConfig,
    left: dict[str, TensorInfo],
    unused: tuple[str, ...] = (),
) -> Adapter:
    width = 1
    for role, side in (("gate", 0), ("up", 0), ("down", 1)):
        info = left.get(tensors.get(role, ""))
        if info is not None and len(info.shape) == 2:
            width = info.shape[side] or 1
            break
    names = {f"{_NAMES[role]}.weight": name for role, name in tensors.items()}
    return Adapter(names, config, width, unused)


def _recognised(left: dict[str, TensorInfo], hidden: int) -> tuple[str, dict[str, str]] | None:
    """(form, role to name), if all of `left` makes one plain form in one way only."""
    if any(info.dtype not in FLOATS or name.endswith("bias") for name, info in left.items()):
        return None
    norms = [name for name, info in left.items() if info.shape == (hidden,)]
    matrices = {name: info.shape for name, info in left.items() if len(info.shape) == 2}
    if len(norms) > 1 or len(norms) + len(matrices) != len(left):
        return None
    for form, roles in PARTS.items():
        if len(roles) == len(matrices):
            parts = _roles(form, matrices, hidden)
            if parts is not None:
                return form, {**parts, **({"norm": norms[0]} if norms else {})}
    return None


def _roles(
    form: str, matrices: Mapping[str, tuple[int, ...]], hidden: int
) -> dict[str, str] | None:
    """Role to name, where shapes and names leave one way only."""
    ways = list(_ways(form, matrices, hidden))
    if len(ways) > 1:
        ways = [way for way in ways if _names_agree(form, way)]
    return ways[0] if len(ways) == 1 else None


def _ways(
    form: str, matrices: Mapping[str, tuple[int, ...]], hidden: int
) -> Iterator[dict[str, str]]:
    """Every way to give the roles of `form` to the matrices that their shapes allow."""
    for order in itertools.permutations(matrices):
        way = dict(zip(PARTS[form], order, strict=True))
        width = hidden if form == "linear" else matrices[way["down"]][1]
        if matrices[way["down"]] == (hidden, width) and all(
            matrices[name] == (width, hidden) for role, name in way.items() if role != "down"
        ):
            yield way


def _names_agree(form: str, way: dict[str, str]) -> bool:
    for role, name in way.items():
        words = set(re.split(r"[._]", name.lower()))
        others = set().union(*(w for r, w in _WORDS[form].items() if r != role))
        own = _WORDS[form][role]
        if not words & own or words & (others - own):
            return False
    return True


def _mapped(file: Path, left: dict[str, TensorInfo], hidden: int) -> Adapter:
    data = _read_map(file)
    tensors, unused = data.pop("tensors", {}), data.pop("unused", [])
    if not _is_names(list(tensors.values()) if isinstance(tensors, dict) else None):
        raise CheckpointError(f"{file}: [tensors] must name the checkpoint's tensors.")
    if not _is_names(unused):
        raise CheckpointError(f"{file}: unused must be a list of names.")
    alpha_name = data.get("alpha")
    if isinstance(alpha_name, str):
        unused = [*unused, alpha_name]
    named = [*tensors.values(), *unused]
    _check_names(file, named, left)
    if isinstance(alpha_name, str):
        data["alpha"] = _read_number(left[alpha_name], alpha_name)
    try:
        config = ResidualConfig(**{"norm": "norm" in tensors} | data)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be used: {error}.") from error
    wanted = {*PARTS[config.form], *(("norm",) if config.norm else ())}
    if set(tensors) != wanted:
        raise CheckpointError(
            f"{file}: a {config.form} needs exactly the tensors {', '.join(sorted(wanted))}, "
            f"got {', '.join(sorted(tensors)) or 'none'}."
        )
    return _adapter(tensors, config, left, tuple(unused))


def _read_map(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not TOML ({error}); correct it.") from error


def _check_names(file: Path, named: list[str], left: dict[str, TensorInfo]) -> None:
    """Every name of the map is a tensor that is left over, and every such tensor is named."""
    absent = [name for name in named if name not in left]
    if absent:
        raise CheckpointError(
            f"{file} names {_listed(absent)}, which the checkpoint has not (or needs elsewhere)."
        )
    if len(set(named)) != len(named):
        raise CheckpointError(f"{file} names a tensor twice; give each one place.")
    forgotten = [f"{name} {list(left[name].shape)}" for name in left if name not in named]
    if forgotten:
        raise CheckpointError(
            f"{file} gives no place to {_listed(forgotten)}; add them to [tensors] or to unused."
        )


def _read_number(info: TensorInfo, name: str) -> float:
    if math.prod(info.shape) != 1 or info.dtype not in FLOATS:
        raise CheckpointError(f"{info.file}: {name} is no single number, so it cannot be alpha.")
    with TensorFile(info.file) as file:
        return float(file.tensor(info))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_SHOWN]) + (", …" if len(items) > _SHOWN else "")


def _unplaceable(left: dict[str, TensorInfo]) -> str:
    folder = next(iter(left.values())).file.parent
    files = sorted({info.file.name for info in left.values()})
    what = _listed([f"{name} {list(info.shape)}" for name, info in left.items()])
    return (
        f"{folder} holds tensors that have no place in the model ({len(left)} unexpected: {what}; "
        f"in {_listed(files)}). If they are a residual adapter, say what each one is in "
        f'{MAP_FILE} there or with --residual-map: form = "gated_mlp" (or mlp, linear) and a '
        "table [tensors] with norm, gate, up and down; else download the checkpoint again."
    )
