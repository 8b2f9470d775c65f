"""The small parts of a layer: RMSNorm, linear, the SwiGLU MLP. Attribute names are tensor names."""

import torch
from torch import Tensor, nn

from engine.kernels import ops


class RMSNorm(nn.Module):
    """Root-mean-square normalisation of the last dimension with a learned weight [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return ops(x).rms_norm(x, self.weight, self.eps)


class Linear(nn.Linear):
    """A linear layer without bias whose product is the kernels'; weight [out, in]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return ops(x).linear(x, self.weight)


class MLP(nn.Module):
    """down_proj(silu(gate_proj(x)) * up_proj(x)); x [..., hidden]."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, width)
        self.up_proj = Linear(hidden, width)
        self.down_proj = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        # Called as modules, not as weights, so that LoRA can stand in for a projection.
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
