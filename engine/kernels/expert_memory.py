"""What the experts' kernels read and write: stacks of weights, an expert beside them, and the
tensors on the way."""

from dataclasses import dataclass

from torch import Tensor

from engine.kernels import tiling
from engine.kernels.plans import Plan
from engine.kernels.tiling import PER_BYTE, PER_SCALE, Layout
from engine.kernels.triton_round import Rounded
from engine.kernels.triton_slots import Slots


@dataclass(frozen=True)
class ExpertWeights:
    """A stack of matrices [E, N, K]: `codes` plain or packed, E4M3 `scales` as bytes, alpha."""

    codes: Tensor
    scales: Tensor
    alpha: Tensor

    @staticmethod
    def plain(weights: Tensor) -> "ExpertWeights":
        """Weights that are no codes; what stands for their scales is never read."""
        return ExpertWeights(weights, weights, weights)

    def layouts(self, plan: Plan, *, packed: bool) -> tuple[Layout, Layout]:
        """Of codes and of scales."""
        codes = tiling.layout(
            self.codes, plan.tile, stacked=True, per_element=PER_BYTE if packed else 1
        )
        if not packed:
            return codes, codes
        scales = tiling.layout(self.scales, codes.tile, stacked=True, per_element=PER_SCALE)
        assert scales.tile == codes.tile
        return codes, scales


@dataclass(frozen=True)
class SharedExpert:
    """An expert for every token, beside a stack and laid out as its matrices are: gate, up, down
    and their scales. It is expert number E of the ids, of alpha's rows, and 1 of the h scale."""

    gate: Tensor
    gate_scales: Tensor
    up: Tensor
    up_scales: Tensor
    down: Tensor
    down_scales: Tensor


@dataclass(frozen=True)
class PlainExpert:
    """An expert for every token in the activations' own dtype, beside a packed stack: gate and up
    [I, d], down [d, I], linear. It is expert number E of the ids."""

    gate: Tensor
    up: Tensor
    down: Tensor


Beside = SharedExpert | PlainExpert


def between(base: Tensor, other: Tensor) -> int:
    """Elements from one tensor to another: how a kernel that has one pointer reaches both."""
    if base.is_meta:
        return 0
    distance, rest = divmod(other.data_ptr() - base.data_ptr(), base.element_size())
    assert rest == 0
    return distance


@dataclass(frozen=True)
class Buffers:
    """What a call writes to on its way: made by `empty`, once where nothing may be allocated."""

    slots: Slots
    x: Rounded | None
    h: Rounded
    rows: Tensor
    plain_h: Tensor | None = None

    @staticmethod
    def empty(
        x: Tensor, top_k: int, experts: int, width: int, plan: Plan, *, scaled: bool,
        plain: bool = False,
    ) -> "Buffers":  # fmt: skip
        """For x [T, d] through `top_k` of `experts` experts of `width`; scaled: W4A4; plain: a
        `PlainExpert` is one of them."""
        tokens, size = x.shape
        pairs = tokens * top_k
        native = scaled and plan.native
        return Buffers(
            Slots.empty(pairs, experts, plan.rows, x.device),
            Rounded.empty(tokens, size, x, native=native) if scaled else None,
            Rounded.empty(pairs, width, x, native=native),
            x.new_empty(pairs, size),
            x.new_empty(tokens, width) if plain else None,
        )
