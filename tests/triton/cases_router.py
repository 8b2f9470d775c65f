"""The router: the reference's choice, equals in their order."""

import pytest
import torch
from torch import Tensor

from engine.kernels import reference, triton_router
from engine.kernels.triton_slots import Slots, slots_launch
from tests.triton.interpreter import in_any_order


def stable_choice(
    scores: Tensor, bias: Tensor, n_group: int, topk_group: int, top_k: int
) -> Tensor:
    """The rule itself in words of one token at a time, the lowest id first among equals."""
    chosen = []
    for row in (scores + bias).tolist():
        size = len(row) // n_group
        groups = [row[g * size : (g + 1) * size] for g in range(n_group)]
        totals = [sum(sorted(group)[-2:]) for group in groups]
        kept = sorted(range(n_group), key=lambda g: (-totals[g], g))[:topk_group]
        allowed = [e for e in range(len(row)) if e // size in kept]
        chosen.append(sorted(allowed, key=lambda e: (-row[e], e))[:top_k])
    return torch.tensor(chosen)


SHAPES = [
    # tokens, hidden, experts, groups, kept groups, top_k
    (7, 64, 8, 4, 2, 2),
    (17, 100, 24, 3, 2, 5),  # nothing a power of two
    (1, 2048, 256, 8, 4, 8),  # LLaDA2.1-mini's router
    (5, 48, 6, 1, 1, 6),  # every expert
    (4, 300, 20, 5, 5, 3),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_choice_is_the_references(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tokens, size, experts, n_group, topk_group, top_k = shape
    torch.manual_seed(tokens)
    hidden = torch.randn(tokens, size).to(dtype)
    gate = (torch.randn(experts, size) / size**0.5).to(dtype)
    bias = torch.randn(experts) * 0.1
    limits = {"n_group": n_group, "topk_group": topk_group, "top_k": top_k, "scale": 2.5}
    ids, weights = triton_router.route(hidden, gate, bias, **limits)
    expected_ids, expected = reference.route(hidden, gate, bias, **limits)
    assert ids.dtype == torch.int64
    assert torch.equal(ids, expected_ids)  # no two scores here lie within float32's rounding
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("shape", [*SHAPES[:2], (40, 32, 48, 8, 4, 8), SHAPES[3]])
def test_its_slots_are_those_of_its_choice(shape: tuple[int, ...], rows: int, joined: bool) -> None:
    """The list that the experts' own kernel would make, whichever programs are the last."""
    tokens, size, experts, n_group, topk_group, top_k = shape
    torch.manual_seed(tokens)
    hidden, gate = torch.randn(tokens, size), torch.randn(experts, size) / size**0.5
    bias, width, number = torch.randn(experts), top_k + joined, experts + joined
    ids = torch.empty(tokens, width, dtype=torch.int64)
    weights = torch.empty(tokens, width)
    found, wanted = (Slots.empty(tokens * width, number, rows, ids.device) for _ in range(2))
    launch = triton_router.route_launch(
        hidden, gate, bias, ids, weights, n_group=n_group, topk_group=topk_group, scale=2.5,
        joined=joined, slots=found,
    )  # fmt: skip
    plain = triton_router.route(
        hidden, gate, bias, n_group=n_group, topk_group=topk_group, top_k=top_k, scale=2.5
    )
    for seed in range(2):
        for tensor in (found.expert, found.filled, found.pairs, found.total, ids):
            tensor.fill_(-1)
        with in_any_order(seed):
            launch.run()
        assert not launch.arguments["counters"].any()
        assert torch.equal(ids[:, :top_k], plain[0])
        assert torch.equal(weights[:, :top_k], plain[1])
        assert not joined or ((ids[:, -1] == experts).all() and (weights[:, -1] == 1).all())
        slots_launch(ids, wanted, number, hidden, None, None).run()
        total = int(wanted.total)
        assert int(found.total) == total
        assert torch.equal(found.expert[:total], wanted.expert[:total])
        assert torch.equal(found.filled[:total], wanted.filled[:total])
        held = torch.arange(rows) < wanted.filled[:total, None]
        pairs = [t.pairs.view(-1, rows)[:total][held] for t in (found, wanted)]
        assert torch.equal(*pairs)


def test_equals_are_chosen_in_their_order() -> None:
    """Few levels of scores, so that ties are everywhere: between experts and between groups."""
    torch.manual_seed(1)
    hidden = torch.eye(16)
    gate = torch.randint(-1, 2, (24, 16)).float()
    bias = torch.zeros(24)
    ids, weights = triton_router.route(
        hidden, gate, bias, n_group=6, topk_group=3, top_k=4, scale=1.0
    )
    scores = (hidden @ gate.T).sigmoid()
    assert torch.equal(ids, stable_choice(scores, bias, 6, 3, 4))
    torch.testing.assert_close(weights.sum(-1), torch.ones(16))


def test_saturated_scores_are_ties() -> None:
    hidden, gate = torch.ones(1, 16), torch.full((8, 16), 4.0)
    ids, weights = triton_router.route(
        hidden, gate, torch.zeros(8), n_group=4, topk_group=2, top_k=3, scale=3.0
    )
    assert ids.tolist() == [[0, 1, 2]]
    assert weights.tolist() == [[1.0, 1.0, 1.0]]


def test_the_bias_chooses_but_does_not_weigh() -> None:
    hidden, gate = torch.zeros(1, 16), torch.zeros(8, 16)
    bias = torch.tensor([0, 0, 0, 0, 0, 9.0, 0, 8.0])
    ids, weights = triton_router.route(
        hidden, gate, bias, n_group=2, topk_group=1, top_k=2, scale=1.0
    )
    assert ids.tolist() == [[5, 7]]
    assert weights.tolist() == [[0.5, 0.5]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is tested here
def test_scores_that_are_not_numbers_name_no_expert_that_is_not_there() -> None:
    hidden = torch.full((2, 16), float("nan"))
    ids, weights = torch.empty(2, 2, dtype=torch.int64), torch.empty(2, 2)
    slots = Slots.empty(4, 6, 8, ids.device)
    triton_router.route_launch(
        hidden, torch.ones(6, 16), torch.zeros(6), ids, weights, n_group=3, topk_group=2,
        scale=1.0, slots=slots,
    ).run()  # fmt: skip
    assert ids.min() >= 0
    assert ids.max() < 6
    assert weights.isnan().all()
    assert 1 <= int(slots.total) <= slots.capacity
