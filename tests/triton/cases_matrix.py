"""The matrix kernels against the plain torch that they stand for."""

import pytest
import torch
from torch import Tensor

from engine.checkpoint.nvfp4 import quantize
from engine.kernels import (
    nvfp4_reference,
    reference,
    tiling,
    triton_decode,
    triton_matrix,
    triton_nvfp4,
)
from engine.kernels.plans import Capability, expert_tile, linear_tile
from engine.kernels.triton_slots import Slots, slots_launch
from tests.triton.interpreter import narrow, values
from tests.triton.target import needs_its_fp4_units

# Relative to the largest output. float32: sums of up to 192 products in another order, each off by
# 2^-24 of the largest partial sum. bf16: both round the same float32 sums, which differ in their
# last bits, so that a rare one falls to the neighbouring bf16, 2^-8 away; three roundings in a row.
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
DTYPES = list(TOLERANCES)
CARDS: list[Capability] = [(8, 0), (9, 0), (10, 0), (12, 0)]
INPUT_SCALES = (torch.tensor(4 / 2688), torch.tensor(3 / 2688))


def assert_near(found: Tensor, wanted: Tensor) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    error = (found.float() - wanted.float()).abs().max()
    assert error <= TOLERANCES[wanted.dtype] * wanted.float().abs().max()


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def choices(tokens: int, experts: int, top_k: int, kind: str) -> Tensor:
    """Expert ids [tokens, top_k], different ones for each token."""
    if kind == "one":  # everybody wants the same expert first
        generator = torch.Generator().manual_seed(1)
        rest = torch.rand(tokens, experts - 1, generator=generator).argsort(1)[:, : top_k - 1] + 1
        return torch.cat((torch.zeros(tokens, 1, dtype=torch.int64), rest), 1)
    used = experts if kind == "all" else top_k + 1  # "few": most experts are not used
    generator = torch.Generator().manual_seed(2)
    return torch.rand(tokens, used, generator=generator).argsort(1)[:, :top_k] + (experts - used)


EXPERT_CASES = [
    # tokens, experts, top_k, hidden, width, choices
    (1, 8, 2, 64, 32, "all"),
    (33, 6, 2, 96, 48, "one"),  # nothing is a multiple of a tile; 33 rows for one expert
    (5, 12, 3, 160, 80, "few"),
]


def stacks(experts: int, hidden: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    gate, up = (draw(experts, width, hidden, seed=s) / hidden**0.5 for s in (3, 4))
    return gate, up, draw(experts, hidden, width, seed=5) / width**0.5


def packed_stacks(gate: Tensor, up: Tensor, down: Tensor) -> list[Tensor]:
    """Codes, scales and alpha of gate and up, then of down."""
    g, u, d = quantize(gate), quantize(up), quantize(down)
    scales = torch.cat((g.scales.view(torch.uint8), u.scales.view(torch.uint8)), 1)
    return [
        torch.cat((g.packed, u.packed), 1), scales.view(torch.float8_e4m3fn),
        torch.stack((g.global_scale, u.global_scale), 1), d.packed, d.scales, d.global_scale,
    ]  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 7, 33])
@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("kind", ["one", "few", "all"])
def test_slots_hold_every_pair_once_with_its_expert(tokens: int, rows: int, kind: str) -> None:
    experts, top_k = 12, 3
    ids = choices(tokens, experts, top_k, kind)
    slots = Slots.empty(ids.numel(), experts, rows, ids.device)
    x = torch.zeros(tokens, 16)
    slots_launch(ids, slots, experts, x, None, None).run()
    counts = torch.bincount(ids.flatten(), minlength=experts)
    total = int(slots.total)
    assert total == int(((counts + rows - 1) // rows).sum())
    assert total <= slots.capacity
    held = []
    for slot in range(total):
        filled = int(slots.filled[slot])
        assert 1 <= filled <= rows
        pairs = slots.pairs[slot * rows : slot * rows + filled].tolist()
        assert {int(ids.flatten()[pair]) for pair in pairs} == {int(slots.expert[slot])}
        held += pairs
    # Sorted by expert, and by token within one: so the list does not depend on timing.
    assert held == ids.flatten().argsort(stable=True).tolist()


def test_the_most_slots_there_can_be_are_counted() -> None:
    """Every expert with one pair more than whole slots is the worst case."""
    ids = torch.arange(4).repeat(9)[:, None]
    slots = Slots.empty(36, 4, 8, ids.device)
    slots_launch(ids, slots, 4, torch.zeros(36, 16), None, None).run()
    assert int(slots.total) == slots.capacity == 8


@pytest.mark.parametrize("case", EXPERT_CASES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plain_experts(case: tuple, dtype: torch.dtype) -> None:
    tokens, experts, top_k, hidden, width, kind = case
    gate, up, down = stacks(experts, hidden, width)
    x, weights = draw(tokens, hidden).to(dtype), draw(tokens, top_k).abs()
    arguments = (
        x, choices(tokens, experts, top_k, kind), weights,
        torch.cat((gate, up), 1).to(dtype), down.to(dtype),
    )  # fmt: skip
    found = triton_matrix.expert_mlp(*arguments, capability=(9, 0))
    assert_near(found, reference.expert_mlp(*arguments))
    assert torch.equal(found, triton_matrix.expert_mlp(*arguments, capability=(9, 0)))


@pytest.mark.parametrize("card", CARDS, ids=str)
@pytest.mark.parametrize("case", EXPERT_CASES, ids=str)
@pytest.mark.parametrize("rounded", [False, True], ids=["w4a16", "w4a4"])
def test_packed_experts(card: Capability, case: tuple, rounded: bool) -> None:
    needs_its_fp4_units(card, rounded)
    tokens, experts, top_k, hidden, width, kind = case
    dtype = torch.bfloat16 if tokens == 1 else torch.float32
    x, weights = draw(tokens, hidden).to(dtype), draw(tokens, top_k).abs()
    arguments = (
        x, choices(tokens, experts, top_k, kind), weights,
        *packed_stacks(*stacks(experts, hidden, width)),
    )  # fmt: skip
    names = ("gate_up_input_scale", "down_input_scale")
    scales = dict(zip(names, INPUT_SCALES, strict=True)) if rounded else {}
    found = triton_nvfp4.nvfp4_expert_mlp(*arguments, **scales, capability=card)
    assert_near(found, nvfp4_reference.nvfp4_expert_mlp(*arguments, **scales))


@pytest.mark.parametrize("card", [(8, 0), (12, 0)], ids=str)
@pytest.mark.parametrize("rounded", [False, True], ids=["w4a16", "w4a4"])
def test_tiled_experts_are_the_linear_ones(card: Capability, rounded: bool) -> None:
    needs_its_fp4_units(card, rounded)
    tile = expert_tile(card, None)
    tokens, experts, top_k, hidden, width = 3, 4, 2, 2 * tile.columns, tile.columns
    packed = packed_stacks(*stacks(experts, hidden, width))
    x, weights = draw(tokens, hidden), draw(tokens, top_k).abs()
    ids = choices(tokens, experts, top_k, "all")
    names = ("gate_up_input_scale", "down_input_scale")
    scales = dict(zip(names, INPUT_SCALES, strict=True)) if rounded else {}
    wanted = triton_nvfp4.nvfp4_expert_mlp(x, ids, weights, *packed, **scales, capability=card)
    for index, per_element, parts in ((0, 2, 2), (1, 16, 2), (3, 2, 1), (4, 16, 1)):
        weight = packed[index]
        laid_out = tiling.tiled(
            weight.view(torch.uint8), tile, per_element=per_element, parts=parts
        )
        assert tiling.is_tiled(laid_out, stacked=True)
        assert torch.equal(tiling.linear(laid_out), weight.view(torch.uint8))
        packed[index] = laid_out.view(weight.dtype)
    found = triton_nvfp4.nvfp4_expert_mlp(x, ids, weights, *packed, **scales, capability=card)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("shape", [(1, 32, 64), (33, 80, 176), (70, 16, 32)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plain_linear(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    tokens, rows, columns = shape
    x, weight = draw(tokens, columns).to(dtype), draw(rows, columns).to(dtype)
    found = triton_matrix.linear(x[None], weight, capability=(9, 0))
    assert_near(found, reference.linear(x[None], weight))


@pytest.mark.parametrize("card", CARDS, ids=str)
@pytest.mark.parametrize("shape", [(1, 32, 64), (33, 80, 176)], ids=str)
@pytest.mark.parametrize("rounded", [False, True], ids=["w4a16", "w4a4"])
def test_packed_linear(card: Capability, shape: tuple[int, int, int], rounded: bool) -> None:
    needs_its_fp4_units(card, rounded)
    tokens, rows, columns = shape
    weight = quantize(draw(rows, columns))
    x = draw(tokens, columns).to(torch.bfloat16 if tokens == 1 else torch.float32)
    scale = INPUT_SCALES[0] if rounded else None
    arguments = (x, weight.packed, weight.scales, weight.global_scale, scale)
    found = triton_nvfp4.nvfp4_linear(*arguments, capability=card)
    assert_near(found, nvfp4_reference.nvfp4_linear(*arguments))


def test_a_tiled_linear_is_the_linear_one() -> None:
    tile = linear_tile((9, 0), None, 64)
    weight = quantize(draw(2 * tile.rows, 2 * tile.columns))
    x = draw(3, 2 * tile.columns)
    rest = (weight.global_scale, None)
    wanted = triton_nvfp4.nvfp4_linear(x, weight.packed, weight.scales, *rest, capability=(9, 0))
    codes = tiling.tiled(weight.packed, tile, per_element=2)
    scales = tiling.tiled(weight.scales.view(torch.uint8), tile, per_element=16)
    found = triton_nvfp4.nvfp4_linear(x, codes, scales, *rest, capability=(9, 0))
    assert codes.dim() == 4
    assert torch.equal(found, wanted)


def test_nothing_in_gives_nothing_out() -> None:
    weight = quantize(draw(32, 64))
    empty = torch.empty(0, 64)
    found = triton_nvfp4.nvfp4_linear(
        empty, weight.packed, weight.scales, weight.global_scale, capability=(9, 0)
    )
    assert found.shape == (0, 32)
    assert triton_matrix.linear(empty, draw(32, 64), capability=(9, 0)).shape == (0, 32)


def test_gradients_come_from_the_reference_whatever_the_layout() -> None:
    tile = linear_tile((9, 0), None, 64)
    weight = quantize(draw(tile.rows, tile.columns))
    x = draw(3, tile.columns).requires_grad_()
    codes = tiling.tiled(weight.packed, tile, per_element=2)
    scales = tiling.tiled(weight.scales.view(torch.uint8), tile, per_element=16)
    triton_nvfp4.nvfp4_linear(
        x, codes, scales.view(torch.float8_e4m3fn), weight.global_scale, capability=(9, 0)
    ).sum().backward()
    plain = nvfp4_reference.unpack_weight(weight.packed, weight.scales) * weight.global_scale
    assert x.grad is not None
    assert torch.allclose(x.grad, plain.sum(0).expand_as(x), atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 16), (7, 96), (3, 1040)], ids=str)
def test_activations_are_rounded_to_the_same_bits(shape: tuple[int, int]) -> None:
    """Also zeros, values beyond the largest scale, blocks below the smallest, and signs of zero."""
    x = draw(*shape) * torch.logspace(-7, 3, shape[0])[:, None]
    x[0, :8] = 0
    x[0, 3] = -1e-9
    found = triton_nvfp4.quantize_activations(x, INPUT_SCALES[0])
    wanted = nvfp4_reference.quantize_activations(x, INPUT_SCALES[0])
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_the_repair_rounds_as_torch_does() -> None:
    """The oracle's own oracle: all 256 E4M3 numbers, and bf16 ties, infinities and subnormals."""
    import triton.language as tl

    every = torch.arange(256, dtype=torch.uint8)
    exact = every.view(torch.float8_e4m3fn).float()
    read = torch.from_numpy(values(every.numpy(), tl.float8e4nv))
    assert torch.equal(read.nan_to_num(-1), exact.nan_to_num(-1))
    wide = torch.cat((draw(4096) * 3, torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1e-39, 4e38, 0.0])))
    bits = torch.from_numpy(narrow(wide.numpy(), tl.bfloat16).view("int16"))
    assert torch.equal(bits.view(torch.bfloat16), wide.bfloat16())
    assert triton_decode.PRODUCT_WORTH.value == 2.0**63
