"""LoRA (arXiv 2106.09685) over a frozen linear layer: W x + scale * B A x."""

import torch
from torch import Tensor, nn

from engine.kernels.nvfp4_reference import unpack_weight
from engine.model.layers import Linear
from engine.model.quantised import NVFP4Linear


class LoRALinear(nn.Module):
    """Wraps `base`; lora_A [r, in] and lora_B [out, r], with lora_B zero at birth.

    Both have the dtype of the base's weight; over packed weights, `dtype`.
    """

    def __init__(
        self,
        base: nn.Linear | NVFP4Linear,
        rank: int,
        scale: float,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        weight = base.alpha if isinstance(base, NVFP4Linear) else base.weight
        dtype = dtype or weight.dtype
        self.base = base
        self.scale = scale
        self.lora_A = nn.Linear(
            base.in_features, rank, bias=False, device=weight.device, dtype=dtype
        )
        self.lora_B = nn.Linear(
            rank, base.out_features, bias=False, device=weight.device, dtype=dtype
        )
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * self.lora_B(self.lora_A(x))

    @torch.no_grad()
    def folded(self) -> Linear:
        """One plain layer that does the same, but for rounding its weight to LoRA's dtype."""
        base = self.base
        if isinstance(base, NVFP4Linear):
            weight = unpack_weight(base.packed, base.scales) * base.alpha
        else:
            weight = base.weight.float()
        weight = weight + self.scale * (self.lora_B.weight.float() @ self.lora_A.weight.float())
        with torch.device("meta"):
            linear = Linear(base.in_features, base.out_features)
        linear.weight = nn.Parameter(weight.to(self.lora_A.weight.dtype), requires_grad=False)
        return linear


def wrap_linear(root: nn.Module, name: str, rank: int, scale: float) -> LoRALinear:
    """Replace the linear layer `name` of `root` by a LoRALinear around it, and return that.

    Raises:
        KeyError: `root` has no linear layer of that name.
    """
    parent_name, _, child = name.rpartition(".")
    try:
        parent = root.get_submodule(parent_name)
        base = parent.get_submodule(child)
    except AttributeError as error:
        raise KeyError(name) from error
    if not isinstance(base, nn.Linear | NVFP4Linear):
        raise KeyError(name)
    packed = isinstance(base, NVFP4Linear)
    wrapped = LoRALinear(base, rank, scale, next(root.parameters()).dtype if packed else None)
    setattr(parent, child, wrapped)
    return wrapped


def fold_lora(root: nn.Module, *, packed: bool) -> None:
    """Make every adapted layer below `root` one plain layer again, in place; `packed`: those whose
    weights are NVFP4 too, which are plain from then on and take four times the memory.

    A step then launches no more than without LoRA, which beside each layer would be three products
    and sums more, for an addition that never changes while answers are made.
    """
    for name, module in list(root.named_modules()):
        if isinstance(module, LoRALinear) and (packed or isinstance(module.base, nn.Linear)):
            root.set_submodule(name, module.folded())


def lora_parameters(root: nn.Module) -> dict[str, torch.nn.Parameter]:
    """The LoRA matrices below `root` by the name of the layer they adapt, as PEFT names them."""
    return {
        f"{name}.{part}.weight": getattr(module, part).weight
        for name, module in root.named_modules()
        if isinstance(module, LoRALinear)
        for part in ("lora_A", "lora_B")
    }
