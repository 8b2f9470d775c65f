"""Which of a trajectory's states are trained, and the packed rows that replay them.

A kept answer's clean final blocks are laid down once as context, its chosen noisy states behind
them; several answers share a row. `staircase.py` says who sees whom. On the weights that rolled
out, a row's logits are the rollout's: that equality is what on-policy means, and it is tested.

Left out: states as their own forwards (the tests' oracle), and stored replay from older weights.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from engine.decode.trajectory import StepState, Trajectory
from engine.kernels import ops
from engine.model.attention import Attend
from engine.model.transformer import LLaDA2Model


@dataclass(frozen=True)
class Sample:
    """What is trained of one answer: `states` in the order they came, and of each, the block
    positions that are trained; `pairs` are indices of neighbours in one block."""

    final_ids: tuple[int, ...]
    block_length: int
    states: tuple[StepState, ...]
    trained: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def clean_tokens(self) -> int:
        """Clean context needed: the blocks before the last state's."""
        return max(state.start for state in self.states)

    @property
    def cost(self) -> int:
        """Tokens in a row."""
        return self.clean_tokens + len(self.states) * self.block_length


def select(
    trajectory: Trajectory, stop_ids: Collection[int], most: int, rng: random.Random
) -> Sample | None:
    """At most `most` neighbouring states that have undecided positions to train; None if none has.

    Trained are undecided positions up to the first stop token, which is included. The window
    wraps around, so that every state of a long answer is as likely as any other.
    """
    end = _end(trajectory, stop_ids)
    found = []
    for state in trajectory.steps:
        open_ = state.undecided.nonzero().flatten().tolist()
        own = tuple(i for i in open_ if state.start + i <= end)
        if own:
            found.append((state, own))
    if not found:
        return None
    if len(found) > most:
        first = rng.randrange(len(found))
        chosen = sorted((first + i) % len(found) for i in range(most))
        found = [found[i] for i in chosen]
    states = tuple(state for state, _ in found)
    return Sample(
        final_ids=trajectory.final_ids,
        block_length=trajectory.block_length,
        states=states,
        trained=tuple(own for _, own in found),
        pairs=tuple(
            (i, i + 1)
            for i, (a, b) in enumerate(pairwise(states))
            if (a.block, a.step + 1) == (b.block, b.step)
        ),
    )


def _end(trajectory: Trajectory, stop_ids: Collection[int]) -> int:
    """Position of the answer's first stop token, or of its last token."""
    first = len(trajectory.prompt_ids)
    for position, token in enumerate(trajectory.final_ids[first:], start=first):
        if token in stop_ids:
            return position
    return len(trajectory.final_ids) - 1


@dataclass(frozen=True)
class Row:
    """Several samples behind each other: all clean contexts, then all states.

    C clean tokens, A answers, S states of B positions, P trained positions, N pairs. The row's
    tokens are C + S * B.
    """

    clean: Tensor  # [C] ids
    lengths: tuple[int, ...]  # A: clean tokens of each answer
    canvas: Tensor  # [S, B] ids
    starts: Tensor  # [S] position of a state's first token
    answer: Tensor  # [S] which answer a state belongs to
    z: Tensor | None  # [S, B, d] float32; None where no state consumed any
    consumed: Tensor  # [S, B] bool: positions that consumed z
    places: Tensor  # [P] index into the S * B state tokens
    targets: Tensor  # [P] the verified final tokens
    state: Tensor  # [P] which state
    pairs: Tensor  # [N, 2] states

    @property
    def block_length(self) -> int:
        return self.canvas.shape[1]

    @property
    def tokens(self) -> int:
        """All tokens of the row."""
        return self.clean.shape[0] + self.canvas.numel()

    @property
    def positions(self) -> Tensor:
        """[C + S * B] true positions in their sequences."""
        device = self.clean.device
        clean = [torch.arange(length, device=device) for length in self.lengths]
        noisy = self.starts[:, None] + torch.arange(self.block_length, device=device)
        return torch.cat((*clean, noisy.flatten()))

    def to(self, device: torch.device) -> "Row":
        """The row on a device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def pack(samples: Sequence[Sample], row_tokens: int) -> list[Row]:
    """Rows of about equal cost, each of at most about `row_tokens` tokens (a longer sample has
    a row to itself). Deterministic."""
    total = sum(sample.cost for sample in samples)
    bins: list[list[Sample]] = [[] for _ in range(max(1, -(-total // row_tokens)))]
    costs = [0] * len(bins)
    for sample in sorted(samples, key=lambda s: -s.cost):
        least = costs.index(min(costs))
        bins[least].append(sample)
        costs[least] += sample.cost
    return [make_row(chosen) for chosen in bins if chosen]


def make_row(samples: Sequence[Sample]) -> Row:
    """One row of these samples, on the device of their states."""
    states = [state for sample in samples for state in sample.states]
    length, device = samples[0].block_length, states[0].canvas.device
    clean: list[int] = []
    answer: list[int] = []
    places, targets, owners, pairs = [], [], [], []
    for index, sample in enumerate(samples):
        first = len(answer)
        clean += sample.final_ids[: sample.clean_tokens]
        pairs += [(first + a, first + b) for a, b in sample.pairs]
        for state, own in zip(sample.states, sample.trained, strict=True):
            places += [len(answer) * length + i for i in own]
            targets += [sample.final_ids[state.start + i] for i in own]
            owners += [len(answer)] * len(own)
            answer.append(index)

    def integers(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    z, consumed = _residual_context(states)
    return Row(
        clean=integers(clean),
        lengths=tuple(sample.clean_tokens for sample in samples),
        canvas=torch.stack([state.canvas for state in states]),
        starts=integers([state.start for state in states]),
        answer=integers(answer),
        z=z,
        consumed=consumed,
        places=integers(places),
        targets=integers(targets),
        state=integers(owners),
        pairs=integers(pairs).view(-1, 2),
    )


def _residual_context(states: Sequence[StepState]) -> tuple[Tensor | None, Tensor]:
    """z [S, B, d] with zeros where a state had none, and where it was consumed [S, B]."""
    nothing = torch.zeros_like(states[0].undecided)
    consumed = torch.stack([nothing if s.z is None else s.undecided for s in states])
    like = next((state.z for state in states if state.z is not None), None)
    if like is None:
        return None, consumed
    zero = torch.zeros_like(like)
    return torch.stack([zero if s.z is None else s.z for s in states]), consumed


def replay(model: LLaDA2Model, row: Row, attend: Attend, *, checkpointed: bool = False) -> Tensor:
    """Normed hidden states [P, d] at the row's trained positions, ready for the head.

    With `checkpointed` a layer's activations are computed again in the backward pass, so that
    frozen weights which a layer unpacks for its own use live no longer than that layer.
    """
    clean = model.embed(row.clean)
    noisy = model.embed(row.canvas, row.z, row.consumed)
    x = torch.cat((clean, noisy.flatten(0, 1)))
    config = model.config
    cos, sin = ops(x).rotary_tables(row.positions, config.rotary_dim, config.rope_theta, x.dtype)
    for layer in model.model.layers:
        if checkpointed and torch.is_grad_enabled():
            x = checkpoint(
                layer, x, cos, sin, attend, use_reentrant=False, preserve_rng_state=False
            )
        else:
            x = layer(x, cos, sin, attend)
    hidden: Tensor = model.model.norm(x[row.clean.shape[0] + row.places])
    return hidden
