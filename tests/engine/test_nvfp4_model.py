"""Packed layers compute what their weights stand for; the cache stays within its bounds."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint.nvfp4 import dequantize, quantize
from engine.kernels import nvfp4_ops, ops
from engine.kernels.nvfp4_reference import quantize_activations, unpack_weight
from engine.model.quantised import (
    NVFP4Experts,
    NVFP4Linear,
    WeightCache,
    count_bytes,
    count_weights,
    share_cache,
)
from tests.conftest import TINY

TOLERANCES = {
    # Sums of 64 products of size 1: alpha multiplies the sum, not each weight.
    torch.float32: 2e-5,
    # Rounded to bf16 at the same three places, now and then to its neighbour.
    torch.bfloat16: 6e-2,
    torch.float16: 8e-3,
}
DTYPES = list(TOLERANCES)


def linear_of(weight: Tensor) -> NVFP4Linear:
    packed = quantize(weight)
    layer = NVFP4Linear(weight.shape[1], weight.shape[0], has_input_scale=True)
    layer.packed, layer.scales, layer.alpha = packed.packed, packed.scales, packed.global_scale
    layer.input_scale = torch.tensor(4 / 2688)
    return layer


def experts_of(gate: Tensor, up: Tensor, down: Tensor) -> NVFP4Experts:
    experts = NVFP4Experts(TINY, has_input_scales=True)
    g, u, d = quantize(gate), quantize(up), quantize(down)
    experts.gate_up = torch.cat((g.packed, u.packed), 1)
    experts.gate_up_scales = torch.cat(
        (g.scales.view(torch.uint8), u.scales.view(torch.uint8)), 1
    ).view(torch.float8_e4m3fn)
    experts.gate_up_alpha = torch.stack((g.global_scale, u.global_scale), 1)
    experts.down, experts.down_scales, experts.down_alpha = d.packed, d.scales, d.global_scale
    experts.gate_up_input_scale = torch.tensor(4 / 2688)
    experts.down_input_scale = torch.tensor(2 / 2688)
    return experts


@pytest.fixture
def stacks() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    experts, width, hidden = 8, 32, 64
    gate, up = (torch.randn(experts, width, hidden, generator=generator) / 8 for _ in range(2))
    return gate, up, torch.randn(experts, hidden, width, generator=generator) / 6


def routed(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, 64, generator=generator)
    ids = torch.stack([torch.randperm(8, generator=generator)[:2] for _ in range(tokens)])
    return x, ids, torch.rand(tokens, 2, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 64), (70, 64)])
def test_a_linear_layer(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    weight, x = torch.randn(48, 64) / 8, torch.randn(shape).to(dtype)
    layer = linear_of(weight)
    got = layer(x)
    want = F.linear(x.float(), dequantize(quantize(weight)))
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), want, atol=TOLERANCES[dtype], rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_experts(stacks: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype, tokens: int) -> None:
    gate, up, down = stacks
    x, ids, weights = routed(tokens)
    x = x.to(dtype)
    got = experts_of(gate, up, down)(x, ids, weights)
    g, u, d = (dequantize(quantize(stack)).to(dtype) for stack in (gate, up, down))
    want = ops(x).expert_mlp(x, ids, weights, torch.cat((g, u), 1), d)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), want.float(), atol=TOLERANCES[dtype], rtol=2e-2)


def test_rounded_activations(stacks: tuple[Tensor, Tensor, Tensor]) -> None:
    """W4A4, written out: the input and what lies between are rounded, the products exact."""
    gate, up, down = stacks
    x, ids, weights = routed(9)
    experts = experts_of(gate, up, down)
    experts.quantize_inputs = True

    def rounded(value: Tensor, scale: Tensor | None) -> Tensor:
        assert scale is not None
        return unpack_weight(*quantize_activations(value, scale)) * scale

    g, u, d = (dequantize(quantize(stack)) for stack in (gate, up, down))
    want = torch.zeros_like(x)
    narrow = rounded(x, experts.gate_up_input_scale)
    for token in range(len(x)):
        for k, e in enumerate(ids[token].tolist()):
            middle = F.silu(g[e] @ narrow[token]) * (u[e] @ narrow[token])
            middle = rounded(middle, experts.down_input_scale)
            want[token] += weights[token, k] * (d[e] @ middle)
    got = experts(x, ids, weights)
    # A value between two codes may fall to either side; one step is a quarter of it at most.
    assert (got - want).abs().median() < 1e-5
    torch.testing.assert_close(got, want, atol=0.1, rtol=0.1)
    experts.quantize_inputs = False
    assert (experts(x, ids, weights) - want).abs().median() > 1e-3


def test_linear_with_rounded_activations() -> None:
    weight, x = torch.randn(48, 64) / 8, torch.randn(5, 64)
    layer = linear_of(weight)
    layer.quantize_inputs = True
    assert layer.input_scale is not None
    narrow = unpack_weight(*quantize_activations(x, layer.input_scale)) * layer.input_scale
    want = F.linear(narrow, dequantize(quantize(weight)))
    torch.testing.assert_close(layer(x), want, atol=2e-5, rtol=1e-4)


def test_gradients_reach_the_input(stacks: tuple[Tensor, Tensor, Tensor]) -> None:
    x, ids, weights = routed(4)
    x.requires_grad_()
    experts_of(*stacks)(x, ids, weights).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_moving_a_model_changes_no_packed_dtype() -> None:
    layer = linear_of(torch.randn(16, 32))
    before = copy.deepcopy(layer)
    for moved in (layer.to(torch.bfloat16), layer.half(), layer.double()):
        assert moved.scales.dtype == torch.float8_e4m3fn
        assert moved.alpha.dtype == torch.float32
        assert torch.equal(moved.alpha, before.alpha)
    assert layer.to("meta").packed.is_meta


def test_counts() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), linear_of(torch.randn(16, 32)))
    assert count_weights(model) == 72 + 512
    assert count_bytes(model) == 4 * 72 + 256 + 32 + 4 + 4


class TestCache:
    def test_changes_nothing(self, stacks: tuple[Tensor, Tensor, Tensor]) -> None:
        experts = experts_of(*stacks)
        for size in (0, 5000, 40_000, 1 << 20):
            experts.cache = WeightCache(size)
            for tokens in (1, 9, 30, 3, 30):
                x, ids, weights = routed(tokens)
                got = experts(x, ids, weights)
                want = nvfp4_ops(x).nvfp4_expert_mlp(
                    x, ids, weights, experts.gate_up, experts.gate_up_scales,
                    experts.gate_up_alpha, experts.down, experts.down_scales, experts.down_alpha,
                )  # fmt: skip
                assert torch.equal(got, want)
                assert experts.cache.nbytes <= size

    def test_unpacks_once_what_fits(self) -> None:
        cache, made = WeightCache(100), []

        def make() -> Tensor:
            made.append(1)
            return torch.zeros(10)

        for _ in range(5):
            cache.begin()
            cache.get(1, make)
            cache.get(2, make)
        assert len(made) == 2
        assert cache.nbytes == 80

    def test_more_experts_than_fit_do_not_drive_each_other_out(self) -> None:
        cache, made = WeightCache(4 * 40), []
        for _ in range(10):
            cache.begin()
            for key in range(6):
                cache.get(key, lambda: made.append(1) or torch.zeros(10))
        assert len(made) == 6 + 9 * 2

    def test_what_is_no_longer_used_makes_room(self) -> None:
        cache = WeightCache(80)
        for key in range(20):
            cache.begin()
            cache.get(key, lambda: torch.zeros(10))
            assert cache.nbytes <= 80
        made = []
        cache.begin()
        cache.get(19, lambda: made.append(1) or torch.zeros(10))
        assert not made

    def test_is_shared_out(self) -> None:
        linear, experts = linear_of(torch.randn(16, 32)), [NVFP4Experts(TINY) for _ in range(2)]
        model = torch.nn.Sequential(*experts, linear)
        share_cache(model, 2048 + 1000)
        assert linear.cache.max_bytes == 2048
        assert [e.cache.max_bytes for e in experts] == [500, 500]
        share_cache(model, 2047)
        assert linear.cache.max_bytes == 0
        assert [e.cache.max_bytes for e in experts] == [1023, 1023]
        share_cache(model, 0)
        assert sum(m.cache.max_bytes for m in model) == 0
