"""RMSNorm: the reference's values, rounded where it rounds."""

import pytest
import torch
from torch import Tensor

from engine.kernels import nvfp4_reference, reference, triton_norm
from engine.kernels.triton_round import Rounded, Rounding

SHAPES = [(1, 2048), (3, 100), (5, 64), (2, 3, 17), (1, 1)]


def close(ours: Tensor, expected: Tensor) -> None:
    """The mean is summed in another order, so the scale may differ in its last bit (6e-8, a few
    of them): float32 to 1e-6; bfloat16 to one of its own steps (2^-8), where that bit tips a
    rounding, twice at most."""
    assert ours.dtype == expected.dtype
    tolerance = 1e-6 if expected.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_norm_is_the_references(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(len(shape))
    x = (torch.randn(shape) * 3).to(dtype)
    weight = (torch.rand(shape[-1]) + 0.5).to(dtype)
    ours, expected = (m.rms_norm(x, weight, 1e-6) for m in (triton_norm, reference))
    close(ours, expected)
    if dtype == torch.bfloat16:
        assert (ours == expected).float().mean() > 0.98  # a tipped rounding is rare


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("also", [False, True])
def test_the_sum_before_the_norm_is_rounded_as_in_the_layer(dtype: torch.dtype, also: bool) -> None:
    torch.manual_seed(7)
    x, added, second = (torch.randn(6, 72).to(dtype) for _ in range(3))
    weight = (torch.rand(72) + 0.5).to(dtype)
    expected = x + (added + second if also else added)
    total, normed = triton_norm.add_rms_norm(x, added, weight, 1e-5, also=second if also else None)
    assert torch.equal(total, expected)
    close(normed, reference.rms_norm(expected, weight, 1e-5))


def test_the_sum_may_replace_its_first_term() -> None:
    x, added = torch.randn(4, 33), torch.randn(4, 33)
    expected = x + added
    out = torch.empty_like(x)
    triton_norm.norm_launch(x, torch.ones(33), 1e-6, out, added=added, total=x).run()
    assert torch.equal(x, expected)


def test_a_row_of_zeros_stays_zero() -> None:
    assert not triton_norm.rms_norm(torch.zeros(2, 8), torch.ones(8), 1e-6).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_the_norm_may_be_rounded_at_once(dtype: torch.dtype, native: bool, keep: bool) -> None:
    torch.manual_seed(8)
    x, added = (torch.randn(5, 176).to(dtype) for _ in range(2))
    weight, unit = (torch.rand(176) + 0.5).to(dtype), torch.tensor(2 / 2688)
    total, normed = triton_norm.add_rms_norm(x, added, weight, 1e-6)
    out, into = torch.full_like(x, 7), Rounded.empty(5, 176, x, native=native)
    triton_norm.norm_launch(
        x, weight, 1e-6, out, added=added, total=x, rounding=Rounding(unit, into), keep=keep
    ).run()
    assert torch.equal(x, total)
    assert torch.equal(out, normed if keep else torch.full_like(x, 7))
    packed, scales = nvfp4_reference.quantize_activations(normed, unit)
    if native:
        assert torch.equal(into.packed, packed)
        assert torch.equal(into.scales, scales.view(torch.uint8))
    else:
        assert torch.equal(into.values, nvfp4_reference.unpack_weight(packed, scales).to(dtype))
