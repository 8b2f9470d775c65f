"""One process of pre-training: a model, its optimizers, its share of every batch.

Left out: dropout, gradient accumulation across steps, mixed precision (on small matrices the
casts cost more than they save).
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from engine.model.moe import Experts, Router
from engine.model.transformer import LLaDA2Model
from finetune.demo.corpus import DemoItem, heldout, training
from finetune.demo.noise import Copy, Example, Noise, NoiseConfig, encode
from finetune.demo.staircase import Packed, StaircaseAttention, pack
from finetune.muon import optimizers

CHUNK = 8  # sequences per forward: small enough for the cache of a core
CLIP = 1.0
BIAS_RATE = 2e-3
PROBES = 96


@dataclass(frozen=True)
class Recipe:
    """Everything that a training run depends on."""

    steps: int
    seed: int = 0
    batch: int = 48  # sequences per step, over all processes
    processes: int = 2
    lr: float = 3e-3
    warmup: int = 60
    hold: float = 0.4  # share of the steps before the linear decay to 0
    block: int = 32
    boost: Mapping[str, float] = field(default_factory=dict)  # task name -> factor of its weight
    noise: NoiseConfig = field(default_factory=NoiseConfig)

    def rate(self, step: int) -> float:
        """Warm-up, hold, linear decay to 0."""
        held = self.hold * self.steps
        decay = min(1.0, (self.steps - step) / max(self.steps - held, 1))
        return self.lr * min(1.0, (step + 1) / self.warmup) * decay


def packed_logits(model: LLaDA2Model, packed: Packed) -> Tensor:
    """Logits [P, V] at the positions that have a target."""
    attend = StaircaseAttention(packed)
    hidden = model.trunk(model.embed(packed.ids), packed.positions, attend)
    logits: Tensor = model.lm_head(model.model.norm(hidden[packed.places])).float()
    return logits


def packed_loss(model: LLaDA2Model, packed: Packed) -> Tensor:
    """Weighted cross-entropy, summed."""
    losses = F.cross_entropy(packed_logits(model, packed), packed.targets, reduction="none")
    return (losses * packed.weights).sum()


def grouped_experts(experts: Experts, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """`Experts.forward` with a cheaper backward pass: no gradient of the size of the whole stack
    per expert, and outputs summed where they belong instead of sorted back."""
    order = ids.flatten().argsort(stable=True)
    counts = torch.bincount(ids.flatten(), minlength=experts.gate_up.shape[0]).tolist()
    token = order // ids.shape[1]
    parts = zip(
        torch.split(x[token], counts), experts.gate_up.unbind(), experts.down.unbind(), strict=True
    )
    outputs = []
    for rows, gate_up, down in parts:
        gate, up = F.linear(rows, gate_up).chunk(2, dim=-1)
        outputs.append(F.linear(F.silu(gate) * up, down))
    weighted = torch.cat(outputs) * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, token, weighted)


class Learner:
    """Holds what one process needs, and makes steps in agreement with the others."""

    def __init__(self, model: LLaDA2Model, tokenizer: Tokenizer, recipe: Recipe, rank: int) -> None:
        self.model, self.tokenizer, self.recipe = model, tokenizer, recipe
        self.optimizers = optimizers(model, recipe.lr)
        self.items: Iterator[DemoItem] = training(recipe.seed * 1000 + rank, recipe.boost)
        self.noise = Noise(tokenizer, recipe.noise, random.Random(f"noise {recipe.seed} {rank}"))
        self.routers = [m for m in model.modules() if isinstance(m, Router)]
        self.loads = [torch.zeros(model.config.num_experts) for _ in self.routers]
        for router, load in zip(self.routers, self.loads, strict=True):
            router.register_forward_hook(_LoadCounter(load))
        for experts in (m for m in model.modules() if isinstance(m, Experts)):
            experts.forward = grouped_experts.__get__(experts)  # type: ignore[method-assign]

    def step(self, number: int) -> float:
        """One optimizer step; returns the loss per unit of weight."""
        rows = [self._row(next(self.items)) for _ in range(self._share)]
        rows.sort(key=lambda row: row[0].shape)
        total = torch.zeros(2)
        for first in range(0, len(rows), CHUNK):
            packed = pack(rows[first : first + CHUNK])
            loss = packed_loss(self.model, packed)
            torch.autograd.backward(loss)
            total += torch.stack((loss.detach(), packed.weights.sum()))
        weight = self._share_gradients(total)
        self._update(self.recipe.rate(number), weight)
        return float(total[0] / weight)

    @property
    def _share(self) -> int:
        return self.recipe.batch // self.recipe.processes

    def _row(self, item: DemoItem) -> tuple[Example, tuple[Copy, ...]]:
        example = encode(self.tokenizer, item, self.recipe.block)
        return example, self.noise.copies(example)

    def _share_gradients(self, total: Tensor) -> Tensor:
        """Sum gradients, losses and loads over the processes; returns the summed weight."""
        if self.recipe.processes > 1:
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            flat = torch.cat([t.flatten() for t in (*grads, *self.loads, total)])
            dist.all_reduce(flat)
            parts = torch.split(flat, [t.numel() for t in (*grads, *self.loads, total)])
            for target, part in zip((*grads, *self.loads, total), parts, strict=True):
                target.copy_(part.view_as(target))
        return total[1]

    def _update(self, rate: float, weight: Tensor) -> None:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.div_(weight)
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        self._balance(rate)

    def _balance(self, rate: float) -> None:
        """Raise the bias of experts that got less than their share, lower the others'."""
        for router, load in zip(self.routers, self.loads, strict=True):
            router.expert_bias += BIAS_RATE * rate / self.recipe.lr * (load.mean() - load).sign()
            load.zero_()

    @torch.no_grad()
    def probe(self) -> tuple[float, float]:
        """Held-out answers with everything hidden but the blocks before: the shares of tokens, and
        of number tokens, that one forward gets right."""
        noise = Noise(self.tokenizer, NoiseConfig(hidden_blocks=1.0), random.Random(0))
        rows = []
        for item in heldout(PROBES, seed=1):
            example = encode(self.tokenizer, item, self.recipe.block)
            rows.append((example, (noise.copies(example)[0],) * 2))
        right = numbers = right_numbers = count = 0
        for first in range(0, len(rows), CHUNK):
            packed = pack(rows[first : first + CHUNK])
            hits = packed_logits(self.model, packed).argmax(-1) == packed.targets
            number = torch.isin(packed.targets, torch.tensor(noise.numbers))
            right, count = right + int(hits.sum()), count + hits.numel()
            right_numbers += int((hits & number).sum())
            numbers += int(number.sum())
        for load in self.loads:
            load.zero_()
        return right / count, right_numbers / max(numbers, 1)


class _LoadCounter:
    def __init__(self, load: Tensor) -> None:
        self.load = load

    def __call__(self, module: object, args: object, output: tuple[Tensor, Tensor]) -> None:
        self.load += torch.bincount(output[0].flatten(), minlength=self.load.numel())
