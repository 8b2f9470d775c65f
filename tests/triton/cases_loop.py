"""The loop's own kernel against its rule in plain torch: the same state and the same mailbox after
every round, by the same predictions; whole answers of many shapes."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.advance import Rules, advance
from engine.kernels.loop_state import (
    CAPPED,
    CONTROL,
    NOT_FINITE,
    OVER,
    RECORD,
    STOPPED,
    LoopState,
    Mailbox,
)
from engine.kernels.triton_loop import advance_launch
from engine.kernels.triton_unmask import BlockRules

CPU = torch.device("cpu")
MASK = 11
STOPS = [3, 7]


@dataclass
class Both:
    """A loop twice: once for the rule, once for the kernel."""

    config: DecodeConfig
    length: int
    residual: bool = False

    def __post_init__(self) -> None:
        self.state = LoopState.empty(self.length, CPU)
        self.box = Mailbox.empty(self.length, 6 * self.length, pinned=False)

    def begin(self, tail: list[int], blocks: int, *, overlap: bool, **control: int) -> None:
        config = self.config
        settings = {
            "last_start": (blocks - 1) * self.length, "most": 1000, "overlap": int(overlap),
            "stop_at_end": int(config.stop_at_end), **control,
        }  # fmt: skip
        self.state.begin(tail, 0, MASK, settings)
        self.other, self.other_box = copy.deepcopy((self.state, self.box))
        rules = BlockRules.of(config, STOPS, MASK, CPU)
        self.kernel = advance_launch(self.other, self.other_box, rules, residual=self.residual)

    def round(self) -> None:
        rules = Rules(self.config, STOPS, MASK, self.residual)
        self.other.chosen.copy_(self.state.chosen)
        self.other.confidence.copy_(self.state.confidence)
        self.other.best.copy_(self.state.best)
        self.other.best_probability.copy_(self.state.best_probability)
        self.other_box.stop.copy_(self.box.stop)
        advance(self.state, self.box, rules)
        self.kernel.run()
        for name, ours, theirs in self.pairs():
            torch.testing.assert_close(
                ours,
                theirs,
                rtol=0,
                atol=0,
                equal_nan=True,
                msg=lambda m, name=name: f"{name}: {m}",
            )

    def pairs(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        for ours, theirs in ((self.other, self.state), (self.other_box, self.box)):
            for field in fields(ours):
                first, second = getattr(ours, field.name), getattr(theirs, field.name)
                if field.name == "states":  # of the block behind only its place is kept
                    first, second = first.flatten()[:6], second.flatten()[:6]
                if field.name == "log":
                    first, second = first[:, : len(RECORD)], second[:, : len(RECORD)]
                yield field.name, first, second

    def predict(self, sampled: bool) -> None:
        """Predictions that lean towards what stands there, so that blocks settle now and then."""
        state, count = self.state, 2 * self.length
        there = state.tokens.flatten()
        random = torch.randint(0, 11, (count,))
        keeps = (torch.rand(count) < 0.9) & (there != MASK)
        best = torch.where(keeps, there, random)
        narrow = int(state.flag("narrow"))
        if narrow:
            best[self.length :] = best[: self.length]
        state.best.copy_(best)
        state.best_probability.copy_((torch.rand(count) * 10).round() / 10)
        state.chosen.copy_(torch.randint(0, 11, (count,)) if sampled else best)
        state.confidence.copy_((torch.rand(count) * 10).round() / 10)

    def outcome(self) -> int:
        return int(self.state.control[CONTROL.index("outcome")])


CONFIGS = [
    DecodeConfig(threshold=0.3, editing_threshold=0.0, max_post_steps=4),
    DecodeConfig(threshold=0.5, editing_threshold=0.8, max_post_steps=2, min_unmask=2),
    DecodeConfig(threshold=0.5, editing_threshold=None, min_unmask=3),
    DecodeConfig(threshold=0.0, editing_threshold=0.3, max_post_steps=0, stop_at_end=False),
    DecodeConfig(threshold=0.0, editing_threshold=1.5, max_post_steps=16, stop_at_end=False),
    DecodeConfig(threshold=0.4, editing_threshold=0.5, temperature=1.0, max_post_steps=3),
]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    ("length", "tail", "blocks"), [(8, [1, 3], 4), (5, [], 6), (32, [2] * 31, 2)]
)
def test_every_round_of_whole_answers(
    config: DecodeConfig, length: int, tail: list[int], blocks: int, overlap: bool
) -> None:
    torch.manual_seed(length + blocks)
    both = Both(config, length, residual=overlap)
    both.begin(tail, blocks, overlap=overlap, pause=blocks % 3)
    while both.outcome() == 0:
        both.predict(config.temperature > 0)
        both.round()
    assert both.outcome() == OVER


def test_a_stop_and_the_cap() -> None:
    torch.manual_seed(1)
    both = Both(CONFIGS[0], 8)
    for stops, outcome in ((True, STOPPED), (False, CAPPED)):
        both.box.clear()
        both.begin([], 4, overlap=True, most=2)
        both.predict(False)
        both.round()
        both.box.stop.fill_(int(stops))
        both.predict(False)
        both.round()
        assert both.outcome() == outcome


@pytest.mark.parametrize("half", [0, 1])
def test_what_is_not_a_number(half: int) -> None:
    """In the open block it ends the answer, in the one behind, which runs along, it does not."""
    config = DecodeConfig(threshold=0.0, editing_threshold=1.5)
    both = Both(config, 4)
    both.begin([], 3, overlap=True)
    both.predict(False)
    both.state.best.copy_(torch.tensor([1, 1, 1, 1] * 2))
    both.state.chosen.copy_(both.state.best)
    both.state.confidence.fill_(0.5)
    both.round()
    assert int(both.state.flag("wide")) == 1
    both.state.confidence[4 * half + 2] = float("nan")
    both.round()
    assert both.outcome() == (0 if half else NOT_FINITE)


def test_rules_may_change_between_answers() -> None:
    config: Any = DecodeConfig(threshold=0.9, min_unmask=1, editing_threshold=None)
    both = Both(config, 4)
    both.begin([], 1, overlap=False)
    both.predict(False)
    both.state.confidence.copy_(torch.tensor([0.5, 0.6, 0.7, 0.8] * 2))
    both.config = DecodeConfig(threshold=0.55, min_unmask=1, editing_threshold=None)
    both.kernel.arguments["thresholds"][0] = 0.55
    both.round()
    assert both.state.undecided[0].tolist() == [1, 0, 0, 0]
