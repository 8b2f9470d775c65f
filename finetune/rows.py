"""Packed rows: clean final blocks laid down once as context, the chosen noisy states behind them.

Several answers share a row. Clean blocks that neighbours begin with alike, a prompt's above all
when it was answered several times, are laid down once for all of them: a clean block depends on
nothing but itself and the blocks before it. `staircase.py` says who sees whom.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from engine.decode.trajectory import StepState
from finetune.samples import Sample


@dataclass(frozen=True)
class Row:
    """Several samples behind each other: all clean contexts, then all states.

    C clean tokens, A answers, S states of B positions, P trained positions, N pairs. The row's
    tokens are C + S * B. A clean token belongs to answers `first` to `last` - 1.
    """

    clean: Tensor  # [C] ids
    place: Tensor  # [C] position in the answers it belongs to
    first: Tensor  # [C]
    last: Tensor  # [C]
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
        block = torch.arange(self.block_length, device=self.clean.device)
        return torch.cat((self.place, (self.starts[:, None] + block).flatten()))

    def to(self, device: torch.device) -> "Row":
        """The row on a device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def pack(samples: Sequence[Sample], row_tokens: int) -> list[Row]:
    """As few rows of at most `row_tokens` tokens as in order of their contexts, the longest as
    short as can be; a longer sample has a row to itself. Deterministic."""
    ordered = sorted(samples, key=lambda sample: sample.context)
    alike = [0, *(shared(*pair) for pair in pairwise(ordered))]
    fewest = len(_cut(ordered, alike, row_tokens))
    least = bisect_left(
        range(row_tokens), True, key=lambda most: len(_cut(ordered, alike, most)) <= fewest
    )
    return [make_row(chosen) for chosen in _cut(ordered, alike, least)]


def shared(one: Sample, other: Sample) -> int:
    """Clean tokens that both begin with, in whole blocks."""
    length, most = one.block_length, min(one.clean_tokens, other.clean_tokens)
    for start in range(0, most, length):
        if one.final_ids[start : start + length] != other.final_ids[start : start + length]:
            return start
    return most


def _cut(samples: Sequence[Sample], alike: Sequence[int], most: int) -> list[list[Sample]]:
    """Rows of neighbours; `alike` is what each shares with the one before it."""
    rows: list[list[Sample]] = []
    room = 0
    for sample, saved in zip(samples, alike, strict=True):
        if rows and sample.cost - saved <= room:
            rows[-1].append(sample)
            room -= sample.cost - saved
        else:
            rows.append([sample])
            room = most - sample.cost
    return rows


def make_row(samples: Sequence[Sample]) -> Row:
    """One row of these samples in their order, on the device of their states."""
    states = [state for sample in samples for state in sample.states]
    length, device = samples[0].block_length, states[0].canvas.device
    answer: list[int] = []
    places, targets, owners, pairs = [], [], [], []
    for index, sample in enumerate(samples):
        first = len(answer)
        pairs += [(first + a, first + b) for a, b in sample.pairs]
        for state, own in zip(sample.states, sample.trained, strict=True):
            places += [len(answer) * length + i for i in own]
            targets += [sample.final_ids[state.start + i] for i in own]
            owners += [len(answer)] * len(own)
            answer.append(index)

    def integers(values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    clean, place, begin, end = integers(_contexts(samples)).view(-1, 4).unbind(1)
    z, consumed = _residual_context(states)
    return Row(
        clean=clean,
        place=place,
        first=begin,
        last=end,
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


def _contexts(samples: Sequence[Sample]) -> list[tuple[int, int, int, int]]:
    """Of each clean token its id, its place, and the range of answers that it belongs to."""
    found: list[tuple[int, int, int, int]] = []
    path: list[int] = []  # where the last sample's clean tokens lie in `found`
    for index, sample in enumerate(samples):
        kept = shared(samples[index - 1], sample) if index else 0
        for at in path[:kept]:
            found[at] = (*found[at][:3], index + 1)
        fresh = range(kept, sample.clean_tokens)
        path = path[:kept] + [len(found) + i for i in range(len(fresh))]
        found += [(sample.final_ids[place], place, index, index + 1) for place in fresh]
    return found


def _residual_context(states: Sequence[StepState]) -> tuple[Tensor | None, Tensor]:
    """z [S, B, d] with zeros where a state had none, and where it was consumed [S, B]."""
    nothing = torch.zeros_like(states[0].undecided)
    consumed = torch.stack([nothing if s.z is None else s.undecided for s in states])
    like = next((state.z for state in states if state.z is not None), None)
    if like is None:
        return None, consumed
    zero = torch.zeros_like(like)
    return torch.stack([zero if s.z is None else s.z for s in states]), consumed
