"""The NVFP4 format against the libraries that define it, and against its definition."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from engine.checkpoint import nvfp4
from engine.checkpoint.nvfp4 import NVFP4Tensor, Style, dequantize, is_quantizable, quantize
from engine.kernels.nvfp4_reference import (
    pack_codes,
    quantize_activations,
    unpack_codes,
    unpack_weight,
)

CASES = load_file(Path(__file__).parents[1] / "data" / "nvfp4" / "cases.safetensors")
NAMES = [name.removeprefix("weight/") for name in CASES if name.startswith("weight/")]
STYLES: dict[str, Style] = {"mo": "modelopt", "ct": "compressed-tensors"}
# compressed-tensors unpacks to bf16 only.
DTYPES = {"mo": torch.float32, "ct": torch.bfloat16}

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def without_minus_zero(packed: Tensor) -> Tensor:
    low, high = packed & 15, packed >> 4
    low, high = torch.where(low == 8, 0, low), torch.where(high == 8, 0, high)
    return low | high << 4


def assert_same(library: str, name: str, theirs: dict[str, Tensor], weight: Tensor) -> None:
    ours = quantize(weight, STYLES[library])
    if (library, name) == ("mo", "zeros"):
        assert theirs["scale"].float().isnan().all()  # the one case where we do better
        assert torch.equal(dequantize(ours), torch.zeros(weight.shape))
        return
    assert torch.equal(without_minus_zero(ours.packed), without_minus_zero(theirs["packed"]))
    assert torch.equal(ours.scales.float(), theirs["scale"].float())
    stored = ours.global_scale if ours.divisor is None else ours.divisor
    assert torch.equal(stored, theirs["global"])
    assert torch.equal(dequantize(ours, DTYPES[library]), theirs["dequantised"])


@pytest.mark.parametrize("library", ["mo", "ct"])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_the_librarys(library: str, name: str) -> None:
    parts = ("packed", "scale", "global", "dequantised")
    theirs = {part: CASES[f"{library}/{name}/{part}"] for part in parts}
    assert_same(library, name, theirs, CASES[f"weight/{name}"])


class TestCodes:
    def test_every_byte(self) -> None:
        values = unpack_codes(torch.arange(256, dtype=torch.uint8))
        signed = [*MAGNITUDES, *(-m for m in MAGNITUDES)]
        assert values.tolist() == [v for b in range(256) for v in (signed[b & 15], signed[b >> 4])]

    def test_rounding_is_to_the_nearest_and_to_even(self) -> None:
        values = torch.arange(-8, 8, 2**-6)
        got = unpack_codes(pack_codes(values))
        for value, code in zip(values.tolist(), got.tolist(), strict=True):
            near = min(MAGNITUDES, key=lambda m: abs(m - abs(value)))
            ties = [m for m in MAGNITUDES if abs(m - abs(value)) == abs(near - abs(value))]
            even = [m for m in ties if MAGNITUDES.index(m) % 2 == 0]
            assert abs(code) == (even[0] if len(ties) > 1 else near), value
            assert code * value >= 0

    def test_beyond_the_largest(self) -> None:
        values = torch.tensor([1e30, -1e30, 6.01, -7.0])
        assert unpack_codes(pack_codes(values)).tolist() == [6, -6, 6, -6]

    def test_a_code_times_a_scale_is_exact_in_bf16_and_f16(self) -> None:
        scales = torch.arange(1, 127, dtype=torch.uint8).view(torch.float8_e4m3fn)[:, None]
        packed = torch.arange(256, dtype=torch.uint8).view(-1, 8)
        for codes in packed:
            exact = unpack_weight(codes.expand(126, 8), scales)
            assert torch.equal(exact.bfloat16().float(), exact)
            assert torch.equal(exact.half().float(), exact)


class TestQuantize:
    @pytest.mark.parametrize("style", STYLES.values())
    @given(
        rows=st.integers(1, 5),
        blocks=st.integers(1, 4),
        seed=st.integers(0, 2**20),
        spread=st.floats(0, 8),
        dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    )
    @settings(max_examples=40, deadline=None)
    def test_error_is_at_most_one_step(
        self, style: Style, rows: int, blocks: int, seed: int, spread: float, dtype: torch.dtype
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(rows, 16 * blocks, generator=generator)
        weight = (weight * torch.exp(-spread * torch.rand(rows, 1, generator=generator))).to(dtype)
        packed = quantize(weight, style)
        # The codes around 5 lie two apart; a scale rounded down cuts off less than that.
        step = packed.scales.float() * packed.global_scale
        # A scale has three bits behind the point, and below 2^-6 fewer: then the block is coarse.
        least = 2**-9 * float(packed.global_scale)
        error = (dequantize(packed) - weight.float()).abs().unflatten(-1, (-1, 16)).amax(-1)
        assert (error <= torch.maximum(step, torch.tensor(4 * least)) * 1.001).all()

    @pytest.mark.parametrize("style", STYLES.values())
    def test_a_stack_is_its_matrices(self, style: Style) -> None:
        stack = torch.randn(2, 3, 8, 32) * torch.tensor([1.0, 5.0, 0.01])[:, None, None]
        whole = quantize(stack, style)
        assert whole.shape == (2, 3, 8, 32)
        assert whole.global_scale.shape == (2, 3)
        assert whole.nbytes == 6 * (8 * 16 + 8 * 2 + 4)
        values = dequantize(whole)
        for i in range(2):
            for j in range(3):
                one = quantize(stack[i, j], style)
                assert torch.equal(whole.packed[i, j], one.packed)
                assert torch.equal(values[i, j], dequantize(one))

    @pytest.mark.parametrize("style", STYLES.values())
    def test_in_pieces(self, style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
        weight = torch.randn(37, 64)
        whole = quantize(weight, style)
        monkeypatch.setattr(nvfp4, "_CHUNK", 5 * 64)
        pieces = quantize(weight, style)
        assert torch.equal(whole.packed, pieces.packed)
        assert torch.equal(whole.scales.float(), pieces.scales.float())

    @pytest.mark.parametrize("style", STYLES.values())
    def test_a_larger_magnitude_may_be_given(self, style: Style) -> None:
        weight = torch.randn(8, 32)
        scale = quantize(weight, style, largest=torch.tensor(100.0)).global_scale
        torch.testing.assert_close(scale, torch.tensor(100.0 / 2688))
        smaller = quantize(weight, style, largest=torch.tensor(0.0))
        assert torch.equal(smaller.global_scale, quantize(weight, style).global_scale)

    @pytest.mark.parametrize("shape", [(16,), (4, 8), (4, 40), (4, 0), (3, 4, 15)])
    def test_rows_that_make_no_blocks(self, shape: tuple[int, ...]) -> None:
        assert not is_quantizable(shape)
        with pytest.raises(ValueError, match="multiple of 16"):
            quantize(torch.zeros(shape))

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_values_that_are_not_finite(self, value: float) -> None:
        weight = torch.zeros(2, 32)
        weight[1, 17] = value
        with pytest.raises(ValueError, match="not finite"):
            quantize(weight)

    def test_no_rows(self) -> None:
        packed = quantize(torch.zeros(0, 32))
        assert packed.shape == (0, 32)
        assert dequantize(packed).shape == (0, 32)

    def test_dequantising_by_a_divisor(self) -> None:
        """Where the reciprocal is rounded, only division gives the library's last bit."""
        packed = quantize(torch.randn(64, 256), "compressed-tensors")
        assert packed.divisor is not None
        by_factor = NVFP4Tensor(packed.packed, packed.scales, packed.global_scale)
        torch.testing.assert_close(dequantize(packed), dequantize(by_factor), rtol=3e-7, atol=0)


class TestActivations:
    def test_like_a_weight_whose_global_scale_is_given(self) -> None:
        x = torch.randn(8, 64)
        weight = quantize(x)
        packed, scales = quantize_activations(x, weight.global_scale)
        assert torch.equal(packed, weight.packed)
        assert torch.equal(scales.float(), weight.scales.float())

    def test_larger_than_calibrated_saturates(self) -> None:
        x = torch.tensor([[1000.0] + [1.0] * 15])
        packed, scales = quantize_activations(x, torch.tensor(1 / 2688))
        assert scales.float().item() == 448
        assert unpack_codes(packed)[0, 0] == 6

    def test_zeros(self) -> None:
        packed, _ = quantize_activations(torch.zeros(2, 3, 32), torch.tensor(0.01))
        assert packed.shape == (2, 3, 16)
        assert not packed.any()
