"""What a training sequence looks like: its blocks, which positions are hidden, which are wrong.

A decoder meets two kinds of positions: undecided ones, to fill, and decided ones, of which some
are wrong. Both are made here. Copies of one sequence hide complementary positions, so that every
answer token is a target.
"""

import random
from dataclasses import dataclass

from tokenizers import Tokenizer

from finetune.demo.corpus import DemoItem
from finetune.demo.vocabulary import END, MASK, TURN_END, render

IGNORE = -1


@dataclass(frozen=True)
class Example:
    """Whole blocks of token ids; the answer runs from `start` to the end, filled with END."""

    ids: tuple[int, ...]
    start: int
    block: int

    @property
    def shape(self) -> tuple[int, int]:
        """(blocks, first block with answer tokens): sequences of one shape share a layout."""
        return len(self.ids) // self.block, self.start // self.block


@dataclass(frozen=True)
class Copy:
    """A noisy version of an example's answer blocks: input, target and weight per position."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class NoiseConfig:
    """Shares and weights, each of them per block or per position as named."""

    hidden_blocks: float = 0.15  # blocks hidden as a whole
    spoilt_blocks: float = 0.5  # blocks of which some decided positions are made wrong
    most_spoilt: float = 0.15  # of the decided positions of such a block
    number_weight: float = 2.0
    repair_weight: float = 1.0  # decided and wrong
    keep_share: float = 0.3  # of the decided and right positions are targets at all
    keep_weight: float = 0.4


class Noise:
    """Turns examples into complementary noisy copies."""

    def __init__(self, tokenizer: Tokenizer, config: NoiseConfig, rng: random.Random) -> None:
        vocabulary = tokenizer.get_vocab()
        self.mask: int = vocabulary[MASK]
        self.numbers = [i for token, i in vocabulary.items() if token.isascii() and token.isdigit()]
        self.number_of = {i: int(token) for token, i in vocabulary.items() if i in {*self.numbers}}
        self.id_of = {int(token): i for token, i in vocabulary.items() if i in self.number_of}
        self.config, self.rng = config, rng

    def copies(self, example: Example) -> tuple[Copy, Copy]:
        """Two copies that hide complementary answer positions of every block."""
        first = example.shape[1] * example.block
        hidden: list[bool] = []
        for start in range(first, len(example.ids), example.block):
            ratio = 1.0 if self.rng.random() < self.config.hidden_blocks else self.rng.random()
            if ratio < 1.0 and self.rng.random() < 0.5:
                ratio = 1.0 - ratio
            hidden += [
                position >= example.start and self.rng.random() < ratio
                for position in range(start, start + example.block)
            ]
        flags = (hidden, [not h for h in hidden])
        one, other = (self._copy(example, first, flag) for flag in flags)
        return one, other

    def _copy(self, example: Example, first: int, hidden: list[bool]) -> Copy:
        inputs, targets, weights = [], [], []
        spoil = 0.0
        for index, hide in enumerate(hidden):
            position = first + index
            right = example.ids[position]
            if index % example.block == 0:
                spoil = self._spoil_rate()
            shown, weight = right, 0.0
            if position >= example.start:
                shown = self.mask if hide else self._shown(example, position, spoil)
                weight = self._weight(shown, right)
            inputs.append(shown)
            targets.append(right if weight else IGNORE)
            weights.append(weight)
        return Copy(tuple(inputs), tuple(targets), tuple(weights))

    def _spoil_rate(self) -> float:
        if self.rng.random() >= self.config.spoilt_blocks:
            return 0.0
        return self.rng.random() * self.config.most_spoilt

    def _weight(self, shown: int, right: int) -> float:
        if shown == right:
            return self.config.keep_weight if self.rng.random() < self.config.keep_share else 0.0
        weight = 1.0 if shown == self.mask else self.config.repair_weight
        return weight * (self.config.number_weight if right in self.number_of else 1.0)

    def _shown(self, example: Example, position: int, spoil: float) -> int:
        """The right token, or with probability `spoil` one that a decoder might have put there."""
        right = example.ids[position]
        if self.rng.random() >= spoil:
            return right
        if right in self.number_of and self.rng.random() < 0.7:
            return self._other_number(self.number_of[right], example)
        near = position + self.rng.choice((-2, -1, -1, 1, 1, 2))
        if self.rng.random() < 0.6 and example.start <= near < len(example.ids):
            return example.ids[near]
        return example.ids[self.rng.randrange(len(example.ids))]

    def _other_number(self, right: int, example: Example) -> int:
        """A neighbour, a slip of ten, a number of the same chat, or any small number."""
        kind = self.rng.randrange(4)
        if kind == 0:
            value = right + self.rng.choice((-2, -1, 1, 2))
        elif kind == 1:
            value = right + self.rng.choice((-10, 10))
        elif kind == 2:
            return self.rng.choice([i for i in example.ids if i in self.number_of])
        else:
            value = self.rng.randrange(100)
        return self.id_of[min(max(value, 0), 999)]


def encode(tokenizer: Tokenizer, item: DemoItem, block: int) -> Example:
    """Prompt, answer and end of turn as whole blocks. Contents never become special tokens."""
    prompt = prompt_ids(tokenizer, item)
    answer = tokenizer.encode(item.answer, add_special_tokens=False).ids
    vocabulary = tokenizer.get_vocab()
    turn_end, end = vocabulary[TURN_END], vocabulary[END]
    ids: list[int] = [*prompt, *answer, turn_end]
    ids += [end] * (-len(ids) % block)
    return Example(tuple(ids), len(prompt), block)


def prompt_ids(tokenizer: Tokenizer, item: DemoItem) -> list[int]:
    ids: list[int] = tokenizer.encode(render(item), add_special_tokens=False).ids
    return ids
