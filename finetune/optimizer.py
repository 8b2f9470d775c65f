"""AdamW in float32 for what is trained, with two learning rates, a schedule, and a guard.

Trained weights may be bf16, whose steps would vanish in rounding: then float32 copies take the
steps and the weights follow. The state is plain tensors by name, which safetensors can hold.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from engine.config import CheckpointError
from finetune.adapters import Trainable
from finetune.config import FinetuneConfig

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Optimizer:
    """One step an update; `state` and `restore` carry it over an interruption."""

    def __init__(self, trainable: Trainable, config: FinetuneConfig) -> None:
        self.config = config
        self.weights = trainable.parameters
        self.masters = {
            name: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float())
            for name, p in self.weights.items()
        }
        self.rates = (config.lr, config.adapter_lr)
        groups = [
            {"params": [self.masters[name] for name in names]}
            for names in (trainable.trunk, trainable.adapter)
        ]
        self.adam = torch.optim.AdamW(groups, lr=0.0, weight_decay=0.0)

    def step(self, update: int) -> float:
        """Clip, step at update's rate, forget the gradients; returns the norm before clipping.

        With a norm that is not finite no weight is touched.
        """
        for name, weight in self.weights.items():
            master = self.masters[name]
            if master is not weight and weight.grad is not None:
                master.grad = weight.grad.float()
        masters = list(self.masters.values())
        norm = float(nn.utils.clip_grad_norm_(masters, self.config.clip))
        if math.isfinite(norm):
            share = self.config.rate(update)
            for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
                group["lr"] = rate * share
            self.adam.step()
            self._copy_back()
        self.forget()
        return norm

    def forget(self) -> None:
        """Drop all gradients."""
        for parameter in (*self.weights.values(), *self.masters.values()):
            parameter.grad = None

    @torch.no_grad()
    def _copy_back(self) -> None:
        for name, weight in self.weights.items():
            if self.masters[name] is not weight:
                weight.copy_(self.masters[name])

    def state(self) -> dict[str, Tensor]:
        """The weights in float32 ("weight.NAME") and the moments of those that have any."""
        tensors = {f"weight.{n}": p.detach().cpu().clone() for n, p in self.masters.items()}
        for name, master in self.masters.items():
            for moment, value in self.adam.state.get(master, {}).items():
                tensors[f"{moment}.{name}"] = value.detach().cpu().clone()
        return tensors

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave. Raises CheckpointError if it is another model's."""
        wanted = {f"weight.{name}": tuple(p.shape) for name, p in self.masters.items()}
        found = {n: tuple(t.shape) for n, t in tensors.items() if n.startswith("weight.")}
        if wanted != found:
            raise CheckpointError(
                "The saved state holds other weights than this run trains; "
                "resume it with the model and the recipe that it began with."
            )
        for name, master in self.masters.items():
            master.copy_(tensors[f"weight.{name}"])
            own = {m: tensors[key] for m in _MOMENTS if (key := f"{m}.{name}") in tensors}
            if own:
                # The step count stays on the host, where AdamW keeps it.
                self.adam.state[master] = {
                    m: t.clone() if m == "step" else t.clone().to(master.device)
                    for m, t in own.items()
                }
        self._copy_back()
