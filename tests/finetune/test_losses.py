"""The three losses against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from finetune.config import FinetuneConfig
from finetune.losses import PositionTerms, Start, combine, position_terms
from finetune.rows import Row

CONFIG = FinetuneConfig(gate=0.9, rho=0.25, anchor_cap=1.0, aec_weight=2.0, anchor_weight=0.5)


def row(state: list[int], answer: list[int], pairs: list[tuple[int, int]]) -> Row:
    """Only what the losses look at: which state a position is of, which answer a state is of."""
    states = len(answer)
    empty = torch.empty(0, dtype=torch.long)
    return Row(
        clean=empty, place=empty, first=empty, last=empty, lengths=(0,) * (max(answer) + 1),
        canvas=torch.zeros(states, 4, dtype=torch.long), starts=torch.zeros(states),
        answer=torch.tensor(answer), z=None, consumed=torch.zeros(states, 4, dtype=torch.bool),
        places=empty, targets=empty, state=torch.tensor(state),
        pairs=torch.tensor(pairs, dtype=torch.long).view(-1, 2),
    )  # fmt: skip


def terms(
    ce: list[float], entropy: list[float] | None = None, kl: list[float] | None = None,
    confidence: list[float] | None = None,
) -> PositionTerms:  # fmt: skip
    zeros = [0.0] * len(ce)
    rows = (ce, entropy or zeros, kl or zeros, confidence or zeros)
    return PositionTerms(*(torch.tensor(values, requires_grad=True) for values in rows))


def test_prediction_is_the_mean_over_uncertain_positions() -> None:
    found = combine(
        terms([1.0, 2.0, 5.0], confidence=[0.5, 0.89, 0.95]), row([0, 0, 1], [0, 0], []), CONFIG, 1
    )
    assert found.prediction.item() == pytest.approx(1.5)
    assert found.uncertain.item() == 2
    assert found.positions == 3


def test_a_long_and_a_short_answer_weigh_the_same() -> None:
    long = [1.0] * 8
    found = combine(
        terms([*long, 3.0]), row([0] * 4 + [1] * 4 + [2], [0, 0, 1], []), CONFIG, responses=2
    )
    assert found.prediction.item() == pytest.approx((1.0 + 3.0) / 2)


def test_an_answer_without_uncertain_positions_adds_nothing_and_breaks_nothing() -> None:
    values = terms([4.0, 1.0], confidence=[0.99, 0.1])
    found = combine(values, row([0, 1], [0, 1], []), CONFIG, responses=2)
    assert found.prediction.item() == pytest.approx(0.5)
    found.total(CONFIG).backward()
    assert values.cross_entropy.grad is not None
    assert values.cross_entropy.grad.tolist() == [0.0, 0.5]


def test_aec_by_hand_and_zero_once_contracted() -> None:
    # Means: source (0.4 + 0.8) / 2 = 0.6; next 0.5. Excess 0.5 - 0.75 * 0.6 = 0.05.
    packed = row([0, 0, 1], [0, 0], [(0, 1)])
    found = combine(terms([0.0] * 3, entropy=[0.4, 0.8, 0.5]), packed, CONFIG, 1)
    assert found.aec.item() == pytest.approx(0.05**2)
    contracted = combine(terms([0.0] * 3, entropy=[0.4, 0.8, 0.45]), packed, CONFIG, 1)
    assert contracted.aec.item() == pytest.approx(0.0, abs=1e-12)


def test_aec_s_source_takes_no_gradient() -> None:
    values = terms([0.0] * 3, entropy=[0.4, 0.8, 0.6])
    combine(values, row([0, 0, 1], [0, 0], [(0, 1)]), CONFIG, 1).aec.backward()
    assert values.entropy.grad is not None
    assert values.entropy.grad[:2].tolist() == [0.0, 0.0]
    assert values.entropy.grad[2].item() == pytest.approx(2 * (0.6 - 0.45))


def test_aec_is_the_mean_over_an_answer_s_pairs() -> None:
    # Answer 0: pairs with excess 0.2 and 0; answer 1: one pair with excess 0.1.
    packed = row([0, 1, 2, 3, 4], [0, 0, 0, 1, 1], [(0, 1), (1, 2), (3, 4)])
    entropy = [0.4, 0.5, 0.3, 0.4, 0.4]
    found = combine(terms([0.0] * 5, entropy=entropy), packed, CONFIG, responses=2)
    first, second = 0.5 - 0.3, 0.4 - 0.3
    assert found.aec.item() == pytest.approx((first**2 / 2 + second**2) / 2)


def test_without_pairs_aec_is_zero_and_differentiable() -> None:
    values = terms([1.0], entropy=[0.5])
    found = combine(values, row([0], [0], []), CONFIG, 1)
    assert found.aec.item() == 0.0
    found.total(CONFIG).backward()


def test_anchor_is_capped_and_only_at_confident_positions() -> None:
    values = terms([0.0] * 4, kl=[0.2, 3.0, 5.0, 0.4], confidence=[0.95, 0.99, 0.2, 0.9])
    found = combine(values, row([0] * 4, [0], []), CONFIG, 1)
    assert found.anchor.item() == pytest.approx((0.2 + 1.0 + 0.4) / 3)
    found.anchor.backward()
    assert values.kl.grad is not None
    # Beyond the cap nothing pulls; an uncertain position is not anchored.
    assert values.kl.grad.tolist() == pytest.approx([1 / 3, 0.0, 0.0, 1 / 3])


def test_total_weighs_the_terms() -> None:
    values = terms([1.0, 0.0], entropy=[0.4, 0.4], kl=[0.0, 0.3], confidence=[0.1, 0.95])
    found = combine(values, row([0, 1], [0, 0], [(0, 1)]), CONFIG, 1)
    assert found.total(CONFIG).item() == pytest.approx(1.0 + 2.0 * 0.1**2 + 0.5 * 0.3)


class Head(nn.Module):
    """Logits are the hidden states themselves, times `scale`."""

    def __init__(self, size: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(scale * torch.eye(size))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def test_terms_of_a_position_by_hand() -> None:
    # Without the mask (token 3) the distribution is (1/2, 1/4, 1/4).
    hidden = torch.tensor([[math.log(2.0), 0.0, 0.0, 9.0]], requires_grad=True)
    start = Start(torch.tensor([[0.0, 0.0, 0.0, -4.0]]), Head(4))
    found = position_terms(hidden, Head(4), torch.tensor([1]), 3, start)
    assert found.cross_entropy.item() == pytest.approx(math.log(4))
    assert found.confidence.item() == pytest.approx(0.5)
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert found.entropy.item() == pytest.approx(entropy / math.log(4))
    # Reverse KL to the uniform start over three tokens: log 3 - H.
    assert found.kl.item() == pytest.approx(math.log(3) - entropy)
    (found.cross_entropy + found.entropy + found.kl).sum().backward()
    assert hidden.grad is not None
    assert torch.isfinite(hidden.grad).all()
    assert hidden.grad[0, 3].item() == 0.0


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(23, 6, generator=generator)
    targets = torch.randint(5, (23,), generator=generator)
    start = Start(torch.randn(23, 6, generator=generator), Head(6))
    results = []
    for values in (1 << 25, 6 * 4):
        monkeypatch.setattr("finetune.losses.CHUNK_VALUES", values)
        own, head = hidden.clone().requires_grad_(True), Head(6, 1.3)
        found = position_terms(own, head, targets, 5, start)
        packed = row([i // 3 for i in range(23)], [0] * 8, [(0, 1), (4, 5)])
        losses = combine(found, packed, replace(CONFIG, gate=0.4), 1)
        losses.total(CONFIG).backward()
        results.append((losses.total(CONFIG), own.grad, head.weight.grad))
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other)
