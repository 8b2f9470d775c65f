"""Attention: block-causal, over a prefix, and with the length on the device.

Tolerances: float32 sums in another order, 1e-5; in bfloat16 the weights are rounded before they
multiply the values (the reference's do not have to be) and so is the result: 2^-7 of values near 1.
"""

import pytest
import torch
from torch import Tensor

from engine.kernels import nvfp4_reference, reference, triton_attention
from engine.kernels.triton_round import Rounded, Rounding
from tests.triton.interpreter import in_any_order

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-6}


def tensors(
    batch: tuple, heads: int, kv_heads: int, tokens: int, reach: int, size: int, dtype: torch.dtype
) -> tuple:
    torch.manual_seed(reach)
    q = torch.randn(*batch, heads, tokens, size).to(dtype)
    k, v = (torch.randn(*batch, kv_heads, reach, size).to(dtype) for _ in range(2))
    return q, k, v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "tokens", "start", "size", "block"),
    [
        ((), 4, 2, 8, 0, 16, 8),
        ((), 4, 2, 8, 16, 16, 8),
        ((), 4, 1, 16, 24, 24, 8),  # two blocks, a head that is no power of two
        ((2,), 2, 2, 21, 8, 16, 4),  # the last block cut short
        ((), 6, 2, 70, 140, 16, 14),  # no power of two anywhere, the keys not divided
        ((2, 1), 3, 1, 5, 5, 20, 5),
    ],
)
def test_it_is_the_references(
    batch: tuple, heads: int, kv_heads: int, tokens: int, start: int, size: int, block: int,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    q, k, v = tensors(batch, heads, kv_heads, tokens, start + tokens, size, dtype)
    ours, expected = (
        m.attention(q, k, v, start=start, block_length=block) for m in (triton_attention, reference)
    )
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def attend_open(
    q: Tensor, keys: Tensor, values: Tensor, start: Tensor, scratch: triton_attention.Scratch
) -> Tensor:
    out = torch.full_like(q, float("nan"))
    triton_attention.open_launch(q, keys, values, start, scratch, out, block_length=8).run()
    return out


@pytest.mark.parametrize("splits", [1, 2, 16])
@pytest.mark.parametrize("start", [0, 8, 72, 200])
@pytest.mark.parametrize("blocks", [1, 2])
def test_one_launch_serves_any_length(start: int, blocks: int, splits: int) -> None:
    tokens, capacity, size = 8 * blocks, 224, 16
    q, keys, values = tensors((), 4, 2, tokens, capacity, size, torch.float32)
    # What lies beyond must never count, whatever it is.
    keys[:, start + tokens :], values[:, start + tokens :] = float("nan"), float("nan")
    scratch = triton_attention.Scratch(4 * tokens, size, q.device, splits)
    for part in (scratch.maxima, scratch.sums, scratch.parts):
        part.fill_(float("nan"))
    where = torch.tensor([start], dtype=torch.int32)
    ours = attend_open(q, keys, values, where, scratch)
    reach = start + tokens
    expected = reference.attention(
        q, keys[:, :reach], values[:, :reach], start=start, block_length=8
    )
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_the_wide_form_hides_the_second_block_from_the_first() -> None:
    q, keys, values = tensors((), 2, 1, 16, 24, 16, torch.float32)
    scratch = triton_attention.Scratch(32, 16, q.device)
    where = torch.tensor([8], dtype=torch.int32)
    before = attend_open(q, keys, values, where, scratch)
    keys[:, 16:], values[:, 16:] = 50.0, -50.0
    after = attend_open(q, keys, values, where, scratch)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.isclose(before[:, 8:], after[:, 8:]).any()


@pytest.mark.parametrize("start", [0, 72, 200])
def test_whichever_program_is_the_last_it_is_the_same(start: int) -> None:
    """Launch after launch on the same counters, which are at rest in between."""
    q, keys, values = tensors((), 4, 2, 16, 224, 16, torch.float32)
    scratch = triton_attention.Scratch(64, 16, q.device)
    where = torch.tensor([start], dtype=torch.int32)
    wanted = attend_open(q, keys, values, where, scratch)
    for seed in range(3):
        with in_any_order(seed):
            assert torch.equal(attend_open(q, keys, values, where, scratch), wanted)
        assert not scratch.counters.any()


@pytest.mark.parametrize("splits", [1, 8])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("size", "dtype"), [(48, torch.bfloat16), (16, torch.float32)])
def test_the_result_may_be_rounded_at_once(
    size: int, dtype: torch.dtype, native: bool, splits: int
) -> None:
    q, keys, values = tensors((), 6, 2, 8, 48, size, dtype)
    where, unit = torch.tensor([40], dtype=torch.int32), torch.tensor(3 / 2688)
    scratch = triton_attention.Scratch(48, size, q.device, splits)
    plain, out = torch.empty(8, 6 * size, dtype=dtype), torch.empty(8, 6 * size, dtype=dtype)
    into = Rounded.empty(8, 6 * size, out, native=native)
    for one, rounding in ((plain, None), (out, Rounding(unit, into))):
        triton_attention.open_launch(
            q, keys, values, where, scratch, one, block_length=8, rounding=rounding
        ).run()
    packed, scales = nvfp4_reference.quantize_activations(plain, unit)
    if native:
        assert torch.equal(into.packed, packed)
        assert torch.equal(into.scales, scales.view(torch.uint8))
    else:
        assert torch.equal(into.values, nvfp4_reference.unpack_weight(packed, scales).to(dtype))


def test_rows_with_prefixes_of_their_own() -> None:
    q, k, v = tensors((3,), 4, 2, 5, 150, 16, torch.float32)
    lengths = torch.tensor([1, 150, 64])
    k[0, :, 1:], v[0, :, 1:] = float("inf"), float("nan")
    ours = triton_attention.prefix_attention(q, k, v, lengths)
    k, v = k.nan_to_num(posinf=0.0), v.nan_to_num()
    expected = reference.prefix_attention(q, k, v, lengths)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = tensors((), 2, 2, 4, 36, 16, torch.float32)
    ours, expected = (
        m.attention(60 * q, 60 * k, v, start=32, block_length=4)
        for m in (triton_attention, reference)
    )
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
