"""Residual context: what the last step believed about a position, fed into the next one's input.

Our adapter is g(z) = down(silu(gate(n)) * up(n)) with n = RMSNorm(z), `down` zero at birth, so that
a fresh adapter changes nothing. The published one is not public, so the other plain forms can be
run too: down(act(up(n))), and one matrix, each with or without the norm.
"""

import torch
from torch import Tensor, nn

from engine.config import ResidualConfig
from engine.model.layers import Linear, RMSNorm


class ResidualAdapter(nn.Module):
    """g: z [..., d] to what is added to the mask's embedding [..., d].

    `form` is "gated_mlp", "mlp" (no gate_proj) or "linear" (down_proj [d, d] alone).
    """

    def __init__(
        self,
        hidden: int,
        width: int,
        eps: float,
        *,
        form: str = "gated_mlp",
        norm: bool = True,
        activation: str = "silu",
    ) -> None:
        super().__init__()
        self.activation = activation
        self.norm = RMSNorm(hidden, eps) if norm else None
        self.gate_proj = Linear(hidden, width) if form == "gated_mlp" else None
        self.up_proj = Linear(hidden, width) if form != "linear" else None
        self.down_proj = Linear(hidden if form == "linear" else width, hidden)
        if not self.down_proj.weight.is_meta:
            nn.init.zeros_(self.down_proj.weight)

    @classmethod
    def from_config(
        cls, hidden: int, width: int, eps: float, config: ResidualConfig
    ) -> "ResidualAdapter":
        """An adapter of the form that `config` describes."""
        return cls(
            hidden, width, eps, form=config.form, norm=config.norm, activation=config.activation
        )

    def forward(self, z: Tensor) -> Tensor:
        x = z.to(self.down_proj.weight.dtype)
        if self.norm is not None:
            x = self.norm(x)
        if self.gate_proj is not None and self.up_proj is not None:
            x = _activate(self.activation, self.gate_proj(x)) * self.up_proj(x)
        elif self.up_proj is not None:
            x = _activate(self.activation, self.up_proj(x))
        return self.down_proj(x)


def _activate(name: str, x: Tensor) -> Tensor:
    if name == "silu":
        return nn.functional.silu(x)
    if name == "gelu":
        return nn.functional.gelu(x)
    return nn.functional.relu(x) if name == "relu" else x


def add_residual(embeds: Tensor, residual: Tensor, undecided: Tensor, alpha: float) -> Tensor:
    """embeds + alpha * residual at undecided positions, embeds elsewhere, in embeds' dtype (an
    adapter in training may be wider than the model).

    embeds and residual [..., T, d], undecided [..., T] bool.
    """
    added = (embeds + alpha * residual).to(embeds.dtype)
    return torch.where(undecided[..., None], added, embeds)
