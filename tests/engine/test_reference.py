"""The CPU's products of few rows, which take routes of their own, against double precision.

Tolerance: sums of up to 1,024 float32 products in another order, each about 1 in size.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels import reference

ROWS = (1, 3, 4, 5, 12, 13, 27, 64, 65)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("shape", [(512, 512), (4608, 64), (96, 32)])
def test_linear(rows: int, shape: tuple[int, int]) -> None:
    weight, x = torch.randn(shape), torch.randn(rows, shape[1])
    close(reference.linear(x, weight), F.linear(x.double(), weight.double()))


@pytest.mark.parametrize("batch", [(0,), (2, 3), (3, 2, 7)])
def test_linear_keeps_leading_dimensions(batch: tuple[int, ...]) -> None:
    weight, x = torch.randn(512, 1024), torch.randn(*batch, 1024)
    close(reference.linear(x, weight), F.linear(x.double(), weight.double()))


def naive_experts(
    hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    result = torch.zeros_like(hidden)
    for token, chosen in enumerate(ids.tolist()):
        for place, expert in enumerate(chosen):
            gate, up = (gate_up[expert] @ hidden[token]).chunk(2)
            result[token] += weights[token, place] * (down[expert] @ (F.silu(gate) * up))
    return result


@pytest.mark.parametrize("rows", ROWS)
def test_experts_with_any_number_of_tokens_each(rows: int) -> None:
    """Expert 0 has all the tokens, expert 1 one, expert 3 none: every group size is met."""
    hidden, weights = torch.randn(rows, 512) / 4, torch.rand(rows, 2)
    ids = torch.tensor([[0, 2]] * rows)
    ids[0, 1] = 1
    gate_up, down = torch.randn(4, 1024, 512) / 16, torch.randn(4, 512, 512) / 16
    wanted = naive_experts(hidden.double(), ids, weights.double(),
                           gate_up.double(), down.double())  # fmt: skip
    close(reference.expert_mlp(hidden, ids, weights, gate_up, down), wanted)


@pytest.mark.parametrize("rows", [3, 32])
def test_their_gradients_are_those_of_plain_products(rows: int) -> None:
    weight = torch.randn(512, 1024, requires_grad=True)
    x = torch.randn(rows, 1024, requires_grad=True)
    found = torch.autograd.grad(reference.linear(x, weight).square().sum(), (weight, x))
    wanted = torch.autograd.grad(F.linear(x, weight).square().sum(), (weight, x))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-2)
