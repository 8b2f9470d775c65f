"""Launches whose last program finishes what the others began, again and again on the card: the same
bits every time, and those of the launches that they stand for. A part that was read too early, or a
counter that was not at rest, would show."""

import pytest
import torch
from torch import Tensor

from engine.kernels import reference
from tests.gpu.card import DEVICE, TIMES, needs_card

pytestmark = needs_card


def draw(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def blank(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("tokens", [32, 64])
@pytest.mark.parametrize("start", [0, 96, 1024])
def test_attention(tokens: int, start: int) -> None:
    from engine.kernels import triton_attention

    q, out = draw(16, tokens, 128), blank(tokens, 16 * 128)
    keys, values = draw(4, start + tokens, 128), draw(4, start + tokens, 128) + 1
    scratch = triton_attention.Scratch(16 * tokens, 128, q.device)
    where = torch.tensor([start], dtype=torch.int32, device=DEVICE)
    launch = triton_attention.open_launch(q, keys, values, where, scratch, out, block_length=32)
    wanted = reference.attention(q, keys, values, start=start, block_length=32)
    wanted = wanted.transpose(0, 1).flatten(1)
    launch.run()
    first = out.clone()
    torch.testing.assert_close(first, wanted, rtol=2**-6, atol=2**-6)
    for _ in range(TIMES):
        out.zero_()
        launch.run()
        assert torch.equal(out, first)
    assert not scratch.counters.any()


@pytest.mark.parametrize("tokens", [32, 64])
def test_router(tokens: int) -> None:
    from engine.kernels import triton_router
    from engine.kernels.triton_slots import Slots, slots_launch

    hidden, gate = draw(tokens, 2048), draw(256, 2048) / 45
    bias = draw(256, dtype=torch.float32) / 10
    ids, weights = blank(tokens, 9, dtype=torch.int64), blank(tokens, 9, dtype=torch.float32)
    found, wanted = (Slots.empty(9 * tokens, 257, 16, ids.device) for _ in range(2))
    sizes = {"n_group": 8, "topk_group": 4, "scale": 2.5}
    launch = triton_router.route_launch(
        hidden, gate, bias, ids, weights, joined=True, slots=found, **sizes
    )
    expected, _ = reference.route(hidden, gate, bias, top_k=8, **sizes)
    for _ in range(TIMES):
        for tensor in (found.expert, found.filled, found.total, ids):
            tensor.fill_(-1)
        launch.run()
        assert torch.equal(ids[:, :8], expected)
        slots_launch(ids, wanted, 257, hidden, None, None).run()
        total = int(wanted.total)
        assert int(found.total) == total
        assert torch.equal(found.expert[:total], wanted.expert[:total])
        assert torch.equal(found.filled[:total], wanted.filled[:total])
        held = torch.arange(16, device=DEVICE) < wanted.filled[:total, None]
        pairs = [slots.pairs.view(-1, 16)[:total][held] for slots in (found, wanted)]
        assert torch.equal(*pairs)


@pytest.mark.parametrize("tokens", [32, 64])
def test_qkv(tokens: int) -> None:
    from engine.kernels import triton_qkv
    from engine.kernels.plans import linear_plan
    from engine.kernels.triton_linear import linear_launch

    x, weight, norm = draw(tokens, 2048), draw(24 * 128, 2048) / 45, draw(128)
    tables = reference.rotary_tables(torch.arange(128, device=DEVICE), 64, 6e5, x.dtype)
    where = torch.tensor([40], dtype=torch.int32, device=DEVICE)
    qkv, q = blank(tokens, 24 * 128), blank(16, tokens, 128)
    keys, values = (torch.zeros(4, 128, 128, dtype=x.dtype, device=DEVICE) for _ in range(2))
    product = linear_launch(x, weight, linear_plan((9, 0), x.dtype, tokens, 24 * 128), qkv)
    store = triton_qkv.store_launch(qkv, norm, norm, *tables, where, keys, values, q, eps=1e-6)
    product.run()
    store.run()
    wanted = [tensor.clone() for tensor in (q, keys, values)]
    (joined,) = triton_qkv.split_linear_launches(product, store)
    for _ in range(TIMES):
        for tensor in (qkv, q, keys, values):
            tensor.zero_()
        joined.run()
        for tensor, other in zip((q, keys, values), wanted, strict=True):
            assert torch.equal(tensor, other)
