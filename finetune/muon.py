"""Muon for matrices, AdamW for the rest: the optimizer of pre-training.

Muon (Jordan et al.): momentum, then the nearest orthogonal matrix by Newton-Schulz, so that every
direction of a weight moves at the same speed. Scaled by 0.2 sqrt(larger side) as in Moonlight, it
takes the learning rate of AdamW. Stacked experts are orthogonalised one by one.
"""

import torch
from torch import Tensor, nn

from engine.model.transformer import LLaDA2Model

_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrix: Tensor, iterations: int = 5) -> Tensor:
    """U V^T of matrix [..., m, n], roughly: singular values end near 1."""
    x = matrix / (matrix.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(iterations):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum with decoupled weight decay."""

    def __init__(
        self, params: list[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.02
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: nn.Parameter, grad: Tensor, group: dict[str, float]) -> None:
        state = self.state[parameter]
        average = state.setdefault("average", torch.zeros_like(grad))
        average.lerp_(grad, 1 - group["momentum"])
        direction = orthogonalise(grad.lerp(average, group["momentum"]))
        scale = 0.2 * max(parameter.shape[-2:]) ** 0.5
        parameter.mul_(1 - group["lr"] * group["decay"])
        parameter.add_(direction, alpha=-group["lr"] * scale)


def optimizers(model: LLaDA2Model, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for embeddings, head, norms and routers."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inside = name.startswith("model.layers.") and parameter.ndim >= 2
        (matrices if inside and "mlp.gate.weight" not in name else rest).append(parameter)
    return [
        Muon(matrices, lr),
        torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]
