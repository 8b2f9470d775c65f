"""How the weights of a checkpoint are stored: plain or NVFP4, expert by expert or stacked.

    plain                NAME.weight
    ModelOpt             NAME.weight (U8), .weight_scale, .weight_scale_2, .input_scale
    compressed-tensors   NAME.weight_packed, .weight_scale, .weight_global_scale,
                         .input_global_scale

NAME is a projection of the published model, ...mlp.experts.E.{gate,up,down}_proj among them; or a
stack of experts: ...mlp.experts.{gate_up_proj,down_proj}, ...mlp.experts.{gate,up,down}_proj, or
...mlp.{w1,w2}. A stack may lack the ".weight" (its scales are then NAME_weight_scale and so on) and
may be stored transposed, [E, in, out]. Input scales may be missing anywhere.

Headers decide; no tensor is read here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from engine.checkpoint.names import Index, Place, model_tensors, projections
from engine.checkpoint.tensor_file import TensorInfo
from engine.config import ModelConfig
from engine.kernels.nvfp4_reference import BLOCK
from engine.model.transformer import LLaDA2Model

Role = Literal["copy", "scales", "factor", "divisor", "input factor", "input divisor", "unpack"]


@dataclass(frozen=True)
class Weight:
    """A matrix or a stack on disk, by the names of its tensors; `divides`: its global scales are
    divisors. Without `scales` it is plain."""

    values: str
    scales: str = ""
    global_scale: str = ""
    input_scale: str = ""
    divides: bool = False

    @property
    def packed(self) -> bool:
        """Whether it is NVFP4."""
        return bool(self.scales)


@dataclass(frozen=True)
class Slot:
    """A matrix or stack that the model needs: called `name` on disk, [..., N, K] is its `shape`, it
    fills part `index` of parameter `target`, and its alpha is part `alpha` of the target's."""

    name: str
    target: str
    shape: tuple[int, ...]
    index: Index = ()
    alpha: Index = ()


@dataclass(frozen=True)
class Move:
    """What becomes of one tensor of the checkpoint. "unpack" makes a plain weight of `weight`'s
    codes, whose own scales are then only looked up."""

    role: Role
    place: Place
    weight: Weight


@dataclass
class Layout:
    """The plan of a load.

    Attributes:
        moves: by name on disk.
        packed: names of the modules whose weights stay packed, and whether they have input scales.
        expected: the shape that every tensor must have, by name; those that are missing too.
    """

    moves: dict[str, Move] = field(default_factory=dict)
    packed: dict[str, bool] = field(default_factory=dict)
    expected: dict[str, tuple[int, ...]] = field(default_factory=dict)


def lay_out(model: LLaDA2Model, headers: dict[str, TensorInfo]) -> Layout:
    """Plan how the tensors in `headers` fill `model`, whose weights are all plain yet."""
    layout = Layout()
    modules: dict[str, list[tuple[Slot, Weight]]] = {}
    for slot in slots(model, headers):
        weight = find(slot.name, headers)
        if weight is None:
            layout.expected[_published(slot.name)] = slot.shape
        elif len(slot.shape) < 2:  # a norm or a bias is never packed, whatever its dtype says
            _add(layout, slot, Weight(weight.values), headers, stays=False)
        else:
            modules.setdefault(_module(slot.target), []).append((slot, weight))
    for module, parts in modules.items():
        # A module is packed as a whole or not at all; where only some of its matrices are, those
        # are unpacked while loading.
        stays = _can_pack(module) and all(weight.packed for _, weight in parts)
        if stays:
            inputs = any(weight.input_scale in headers for _, weight in parts)
            layout.packed[module] = inputs
        for slot, weight in parts:
            _add(layout, slot, weight, headers, stays)
    return layout


def slots(model: LLaDA2Model, headers: dict[str, TensorInfo]) -> Iterator[Slot]:
    """All that a plain `model` needs, in its order; experts as `headers` spell them."""
    tensors = model_tensors(model)
    for name, tensor in tensors.items():
        if name.endswith((".experts.gate_up", ".experts.down")):
            yield from _expert_slots(name, tensors, model.config, headers)
        else:
            yield Slot(name.removesuffix(".weight"), name, tuple(tensor.shape))


def _expert_slots(
    target: str, tensors: dict[str, Tensor], config: ModelConfig, headers: dict[str, TensorInfo]
) -> Iterator[Slot]:
    stem, stack = target.rsplit(".", 1)
    parts = projections(stack, config)
    experts, _, columns = tensors[target].shape
    for whole in (f"{stem}.{stack}_proj", f"{stem.removesuffix('.experts')}.{_SHORT[stack]}"):
        if find(whole, headers) is not None:
            yield Slot(whole, target, tuple(tensors[target].shape))
            return
    everything = slice(None)
    stacked = any(find(f"{stem}.{projection}", headers) is not None for projection in parts)
    for number, (projection, rows) in enumerate(parts.items()):
        column = (number,) if stack == "gate_up" else ()
        size = rows.stop - rows.start
        if stacked:
            yield Slot(
                f"{stem}.{projection}", target, (experts, size, columns),
                (everything, rows), (everything, *column),
            )  # fmt: skip
            continue
        for expert in range(experts):
            yield Slot(
                f"{stem}.{expert}.{projection}", target, (size, columns),
                (expert, rows), (expert, *column),
            )  # fmt: skip


_SHORT = {"gate_up": "w1", "down": "w2"}


def find(name: str, headers: dict[str, TensorInfo]) -> Weight | None:
    """How the matrix, stack or other tensor `name` is stored, if it is."""
    if f"{name}.weight_packed" in headers:
        return Weight(
            f"{name}.weight_packed", f"{name}.weight_scale", f"{name}.weight_global_scale",
            f"{name}.input_global_scale", divides=True,
        )  # fmt: skip
    for values, joint in ((f"{name}.weight", "."), (name, "_")):
        info = headers.get(values)
        if info is not None and info.dtype == "U8":
            stem = f"{name}{joint}"
            return Weight(
                values, f"{stem}weight_scale", f"{stem}weight_scale_2", f"{stem}input_scale"
            )
        if info is not None:
            return Weight(values)
    return None


def _add(
    layout: Layout, slot: Slot, weight: Weight, headers: dict[str, TensorInfo], stays: bool
) -> None:
    """Moves and expected shapes of one weight."""
    if not weight.packed:
        shape, flipped = _oriented(slot.shape, headers[weight.values].shape)
        layout.expected[weight.values] = shape
        layout.moves[weight.values] = Move("copy", Place(slot.target, slot.index, flipped), weight)
        return
    *lead, rows, columns = slot.shape
    # Codes of a stack can have the same shape both ways round; the scales then tell.
    scales = headers.get(weight.scales)
    narrow = (*lead, rows, columns // BLOCK)
    shape, flipped = _oriented(narrow, scales.shape if scales is not None else narrow)
    codes = (*lead, rows, columns // 2)
    layout.expected[weight.scales] = shape
    layout.expected[weight.values] = (*lead, *reversed(codes[-2:])) if flipped else codes
    for name in (weight.global_scale, weight.input_scale):
        if name == weight.global_scale or name in headers:
            layout.expected[name] = _scalar_shape(headers.get(name), lead)
    layout.moves |= (
        _moves(slot, weight, headers, flipped)
        if stays
        else _unpacking(slot, weight, headers, flipped)
    )


def _moves(
    slot: Slot, weight: Weight, headers: dict[str, TensorInfo], flipped: bool
) -> dict[str, Move]:
    """Into a module that stays packed. A linear layer's buffers have names of their own."""
    stem, _, last = slot.target.rpartition(".")
    linear = last == "weight"
    prefix = "" if linear else f"{last}_"
    moves = {
        weight.values: Move(
            "copy", Place(f"{stem}.packed" if linear else slot.target, slot.index, flipped), weight
        ),
        weight.scales: Move("scales", Place(f"{stem}.{prefix}scales", slot.index, flipped), weight),
        weight.global_scale: Move(
            "divisor" if weight.divides else "factor",
            Place(f"{stem}.{prefix}alpha", slot.alpha), weight,
        ),
    }  # fmt: skip
    if weight.input_scale in headers:
        moves[weight.input_scale] = Move(
            "input divisor" if weight.divides else "input factor",
            Place(f"{stem}.{prefix}input_scale"), weight,
        )  # fmt: skip
    return moves


def _unpacking(
    slot: Slot, weight: Weight, headers: dict[str, TensorInfo], flipped: bool
) -> dict[str, Move]:
    """Into a plain weight: the codes are unpacked, everything else is looked up meanwhile."""
    move = Move("unpack", Place(slot.target, slot.index, flipped), weight)
    names = (weight.values, weight.scales, weight.global_scale, weight.input_scale)
    return {name: move for name in names if name in headers}


def _oriented(wanted: tuple[int, ...], found: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """The shape to expect, and whether that is `wanted` (a stack's) the other way round."""
    flipped = (*wanted[:-2], *reversed(wanted[-2:]))
    if len(wanted) == 3 and found != wanted and found == flipped:
        return flipped, True
    return wanted, False


def _scalar_shape(info: TensorInfo | None, lead: list[int]) -> tuple[int, ...]:
    """What a global scale's shape must be: one number, or one for each of a stack's experts, or
    two (gate and up) for each; with any dimensions of one."""
    shape = info.shape if info is not None else (1,)
    wide = [size for size in shape if size != 1]
    allowed = [[], *([lead, [*lead, 2]] if lead else [])]
    return shape if wide in allowed else (1,)


def _can_pack(module: str) -> bool:
    """Whether there is a packed form of the module: of linear layers and experts."""
    return not module.endswith(("word_embeddings", ".gate", "norm"))


def _module(target: str) -> str:
    return target.rpartition(".")[0]


def _published(name: str) -> str:
    """The published name of what is missing under `name`."""
    return name if name.endswith("expert_bias") else f"{name}.weight"
