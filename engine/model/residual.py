"""Residual context: what the last step believed about a position, fed into the next one's input.

The adapter's form is ours (the published one is not public): g(z) = down(silu(gate(n)) * up(n))
with n = RMSNorm(z), `down` zero at birth, so that a fresh adapter changes nothing.
"""

import torch
from torch import Tensor, nn

from engine.model.layers import MLP, RMSNorm


class ResidualAdapter(nn.Module):
    """g: z [..., d] to what is added to the mask's embedding [..., d]."""

    def __init__(self, hidden: int, width: int, eps: float) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden, eps)
        mlp = MLP(hidden, width)
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj
        if not self.down_proj.weight.is_meta:
            nn.init.zeros_(self.down_proj.weight)

    def forward(self, z: Tensor) -> Tensor:
        n = self.norm(z.to(self.down_proj.weight.dtype))
        return self.down_proj(nn.functional.silu(self.gate_proj(n)) * self.up_proj(n))


def add_residual(embeds: Tensor, residual: Tensor, undecided: Tensor, alpha: float) -> Tensor:
    """embeds + alpha * residual at undecided positions, embeds elsewhere, in embeds' dtype (an
    adapter in training may be wider than the model).

    embeds and residual [..., T, d], undecided [..., T] bool.
    """
    added = (embeds + alpha * residual).to(embeds.dtype)
    return torch.where(undecided[..., None], added, embeds)
