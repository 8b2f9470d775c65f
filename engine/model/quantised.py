"""Linear layers and experts whose weights stay packed as NVFP4, beside the plain ones they replace.

What a weight is: `engine/kernels/nvfp4_reference.py`. Left out: training of packed weights, and
writing them; a LoRA over them is fine.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from engine.config import ModelConfig
from engine.kernels import nvfp4_ops
from engine.kernels.nvfp4_reference import BLOCK


class WeightCache:
    """Unpacked weights of one module, at most `max_bytes` of them.

    What was used in this call or the one before stays; only older weights make room, the oldest
    first. Denoising calls a layer again and again with mostly the same experts: evicting the least
    recently used would throw each one out just before it is needed.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._call = 0
        self._weights: dict[int, tuple[Tensor, int]] = {}  # in the order of their last use

    def begin(self) -> None:
        """A new call begins."""
        self._call += 1

    def get(self, key: int, unpack: Callable[[], Tensor]) -> Tensor:
        """The weight of `key`, from memory or from `unpack`."""
        weight, _ = self._weights.pop(key, (None, 0))
        if weight is None:
            weight = unpack()
            if not self._make_room(weight.nbytes):
                return weight
            self.nbytes += weight.nbytes
        self._weights[key] = (weight, self._call)
        return weight

    def _make_room(self, size: int) -> bool:
        while self.nbytes + size > self.max_bytes:
            oldest = next(iter(self._weights), None)
            if oldest is None or self._weights[oldest][1] >= self._call - 1:
                return False
            self.nbytes -= self._weights.pop(oldest)[0].nbytes
        return True


class _Packed(nn.Module):
    """What packed modules share. `quantize_inputs`: W4A4, where the module has input scales."""

    input_scale_names: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.cache = WeightCache()
        self.quantize_inputs = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Codes and scales mean what they mean whatever dtype the model is moved to.
        def keep_dtype(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        applied: Self = super()._apply(keep_dtype, recurse)  # type: ignore[no-untyped-call]
        return applied

    @property
    def has_input_scales(self) -> bool:
        """Whether the checkpoint gave any."""
        return any(getattr(self, name) is not None for name in self.input_scale_names)

    def weights(self) -> int:
        """How many weights the codes stand for."""
        return 2 * sum(b.numel() for b in self.buffers() if b.dtype == torch.uint8)

    def _used(self, input_scale: Tensor | None) -> Tensor | None:
        return input_scale if self.quantize_inputs else None


class NVFP4Linear(_Packed):
    """A linear layer without bias: packed [N, K/2], scales [N, K/16], alpha and input_scale []."""

    input_scale_names = ("input_scale",)
    packed: Tensor
    scales: Tensor
    alpha: Tensor
    input_scale: Tensor | None

    def __init__(self, inputs: int, outputs: int, *, has_input_scale: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        _add_weight(self, "packed", "scales", (outputs, inputs))
        self.register_buffer("alpha", torch.ones(()))
        self.register_buffer("input_scale", torch.ones(()) if has_input_scale else None)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., K] to [..., N]."""
        result: Tensor = nvfp4_ops(x).nvfp4_linear(
            x, self.packed, self.scales, self.alpha, self._used(self.input_scale), cache=self.cache
        )
        return result


class NVFP4Experts(_Packed):
    """The routed experts, stacked: gate_up [E, 2I, d/2] (gate rows first), down [E, d, I/2].

    Scales [..., K/16]; gate_up_alpha [E, 2] (gate, up) and down_alpha [E]; input scales [], shared
    by all experts of the layer.
    """

    input_scale_names = ("gate_up_input_scale", "down_input_scale")
    gate_up: Tensor
    gate_up_scales: Tensor
    gate_up_alpha: Tensor
    down: Tensor
    down_scales: Tensor
    down_alpha: Tensor
    gate_up_input_scale: Tensor | None
    down_input_scale: Tensor | None

    def __init__(self, config: ModelConfig, *, has_input_scales: bool = False) -> None:
        super().__init__()
        experts, width, hidden = (
            config.num_experts, config.moe_intermediate_size, config.hidden_size
        )  # fmt: skip
        _add_weight(self, "gate_up", "gate_up_scales", (experts, 2 * width, hidden))
        _add_weight(self, "down", "down_scales", (experts, hidden, width))
        self.register_buffer("gate_up_alpha", torch.ones(experts, 2))
        self.register_buffer("down_alpha", torch.ones(experts))
        for name in self.input_scale_names:
            self.register_buffer(name, torch.ones(()) if has_input_scales else None)

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """x [T, d] through its experts, weighted and summed: [T, d]."""
        result: Tensor = nvfp4_ops(x).nvfp4_expert_mlp(
            x,
            ids,
            weights,
            self.gate_up,
            self.gate_up_scales,
            self.gate_up_alpha,
            self.down,
            self.down_scales,
            self.down_alpha,
            gate_up_input_scale=self._used(self.gate_up_input_scale),
            down_input_scale=self._used(self.down_input_scale),
            cache=self.cache,
        )
        return result


def _add_weight(module: nn.Module, packed: str, scales: str, shape: tuple[int, ...]) -> None:
    *rows, columns = shape
    module.register_buffer(packed, torch.empty(*rows, columns // 2, dtype=torch.uint8))
    module.register_buffer(scales, torch.empty(*rows, columns // BLOCK, dtype=torch.float8_e4m3fn))


def packed_modules(model: nn.Module) -> Iterator[NVFP4Linear | NVFP4Experts]:
    """The modules of `model` that hold packed weights."""
    return (m for m in model.modules() if isinstance(m, NVFP4Linear | NVFP4Experts))


def count_weights(model: nn.Module) -> int:
    """How many weights `model` has, packed ones counted as what they stand for."""
    plain = sum(parameter.numel() for parameter in model.parameters())
    return plain + sum(module.weights() for module in packed_modules(model))


def count_bytes(model: nn.Module) -> int:
    """Bytes that the weights of `model` take; unpacked copies in caches are not counted."""
    packed = (buffer for module in packed_modules(model) for buffer in module.buffers())
    return sum(tensor.nbytes for source in (model.parameters(), packed) for tensor in source)


def share_cache(model: nn.Module, max_bytes: int) -> None:
    """Divide `max_bytes` of memory for unpacked weights between the packed modules of `model`.

    Linear layers are used in every forward, so they come first, whole or not at all; the experts
    get equal parts of the rest.
    """
    left = max_bytes
    for module in packed_modules(model):
        if isinstance(module, NVFP4Linear):
            size = 4 * module.weights()
            module.cache.max_bytes = size if size <= left else 0
            left -= module.cache.max_bytes
    experts = [module for module in packed_modules(model) if isinstance(module, NVFP4Experts)]
    for module in experts:
        module.cache.max_bytes = left // len(experts)
