"""The FP4 self-test passes where products are right, and fails in words where they are not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.kernels import nvfp4_reference
from engine.machine.self_test import (
    ENGINE,
    PLAIN,
    Problem,
    e2m1,
    e4m3,
    largest_error,
    make_problem,
    plain,
    self_test,
)


def test_it_passes_on_this_processor_and_says_what_was_tested() -> None:
    row = self_test("cpu")
    assert row.state == "ok"
    assert "on cpu (the engine's own linear layer)" in row.found
    assert "agrees with the reference" in row.found
    row = self_test("cpu", PLAIN)
    assert row.state == "ok"
    assert "plain torch operations; no FP4 unit and no compiled kernel" in row.found


def test_it_runs_what_serves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that multiplies wrongly is found out: the test goes the engine's own way."""

    class Broken:
        @staticmethod
        def nvfp4_linear(x: Tensor, packed: Tensor, scales: Tensor, alpha: Tensor) -> Tensor:
            return nvfp4_reference.nvfp4_linear(x, packed, scales, alpha * 1.1)

    monkeypatch.setattr("engine.kernels.nvfp4_ops", lambda x: Broken)
    row = self_test("cpu")
    assert row.state == "no"
    assert "is wrong" in row.found
    assert self_test("cpu", PLAIN).state == "ok"


def test_the_reference_decodes_by_the_formats_definition() -> None:
    codes = [e2m1(code) for code in range(16)]
    assert codes[:8] == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert codes[8:] == [-value for value in codes[:8]]
    bytes_ = torch.arange(256, dtype=torch.uint8)
    expected = bytes_.view(torch.float8_e4m3fn).double()
    torch.testing.assert_close(
        torch.tensor([e4m3(byte) for byte in range(256)], dtype=torch.float64), expected,
        rtol=0, atol=0, equal_nan=True,
    )  # fmt: skip


def test_the_problem_has_every_code_and_the_low_half_comes_first() -> None:
    problem = make_problem()
    assert set((problem.codes & 15).flatten().tolist()) == set(range(16))
    assert set((problem.codes >> 4).flatten().tolist()) == set(range(16))
    assert torch.isfinite(problem.scales.view(torch.float8_e4m3fn).float()).all()


def test_the_engine_in_bfloat16_passes_with_a_cards_tolerance() -> None:
    def rounded(problem: Problem, device: str) -> Tensor:
        x = problem.x.bfloat16()
        scales = problem.scales.view(torch.float8_e4m3fn)
        alpha = torch.tensor(problem.global_scale)
        return nvfp4_reference.nvfp4_linear(x, problem.codes, scales, alpha)

    assert 1e-5 < largest_error("cpu", replace(ENGINE, run=rounded)) < ENGINE.tolerance


def test_a_product_in_bfloat16_passes_with_a_cards_tolerance() -> None:
    def rounded(problem: Problem, device: str) -> Tensor:
        return plain(problem, device).bfloat16()

    product = replace(PLAIN, run=rounded)
    assert 1e-5 < largest_error("cpu", product) < PLAIN.tolerance


def swapped(problem: Problem, device: str) -> Tensor:
    return plain(replace(problem, codes=problem.codes << 4 | problem.codes >> 4), device)


def one_scale_off(problem: Problem, device: str) -> Tensor:
    scales = problem.scales.clone()
    scales[3, 2] += 8  # one power of two
    return plain(replace(problem, scales=scales), device)


def unscaled(problem: Problem, device: str) -> Tensor:
    return plain(replace(problem, global_scale=1.0), device)


def zeros(problem: Problem, device: str) -> Tensor:
    return torch.zeros_like(plain(problem, device))


def not_numbers(problem: Problem, device: str) -> Tensor:
    return plain(problem, device) * float("nan")


@pytest.mark.parametrize("broken", [swapped, one_scale_off, unscaled, zeros, not_numbers])
def test_a_wrong_product_fails_in_words(broken: Callable[[Problem, str], Tensor]) -> None:
    # With the wider of the two tolerances, so that a card would be found out as well.
    product = replace(PLAIN, run=broken, cpu_tolerance=PLAIN.tolerance)
    row = self_test("cpu", product)
    assert row.state == "no"
    assert "is wrong: off by" in row.found
    assert "orl-chat doctor --report" in row.fix


def test_a_product_of_another_shape_fails_in_words() -> None:
    row = self_test("cpu", replace(PLAIN, run=lambda problem, device: plain(problem, device)[:1]))
    assert row.state == "no"
    assert "fails: the result is (1, 64), not (32, 64)" in row.found


def test_a_device_that_fails_is_a_row() -> None:
    def fail(problem: Problem, device: str) -> Tensor:
        raise RuntimeError("CUDA error: no kernel image is available\nand sixty lines more")

    row = self_test("cuda:0", replace(PLAIN, run=fail))
    assert row.state == "no"
    assert "on cuda:0" in row.found
    assert row.found.endswith("fails: CUDA error: no kernel image is available")
    assert "--device cpu" in row.fix


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_passes_on_a_card() -> None:
    assert self_test("cuda:0").state == "ok"
    assert self_test("cuda:0", PLAIN).state == "ok"
