"""A small NVFP4 matrix product on a device, held against one that is computed from the bits.

The reference knows nothing of torch's decoding: it takes every weight apart in Python by the
format's definition (E2M1 codes, two a byte, the low half first; an E4M3 scale for each 16 of them;
one global scale) and sums in float64. So a device, a driver or a kernel that multiplies wrongly
is found before it writes an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.machine.facts import Row

if TYPE_CHECKING:
    from torch import Tensor

NAME = "FP4 self-test"

TOKENS, INPUTS, OUTPUTS = 32, 128, 64
BLOCK = 16

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Problem:
    """x [T, K] times a weight in NVFP4: codes [N, K/2] and scales [N, K/16], both bytes, and a
    global scale to multiply by. All of it on the CPU."""

    x: Tensor
    codes: Tensor
    scales: Tensor
    global_scale: float


@dataclass(frozen=True)
class Product:
    """A way to multiply. `what` says in words what a passed test has tested.

    `run` gets a problem, a device and returns [T, N] there. Its error may be `tolerance` on a card
    and `cpu_tolerance` on a processor, as a share of the sum of the terms' absolute values.
    """

    what: str
    run: Callable[[Problem, str], Tensor]
    tolerance: float
    cpu_tolerance: float


def plain(problem: Problem, device: str) -> Tensor:
    """Decode on the device, multiply there: bfloat16 on a card, float32 on a processor."""
    import torch

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    codes, scales = problem.codes.to(device), problem.scales.to(device)
    values = torch.tensor([*_MAGNITUDES, *(-m for m in _MAGNITUDES)], dtype=dtype, device=device)
    pairs = torch.stack((codes & 15, codes >> 4), dim=-1)
    wide = scales.view(torch.float8_e4m3fn).to(dtype).repeat_interleave(BLOCK, dim=1)
    weight = values[pairs.flatten(1).long()] * wide
    return problem.x.to(device, dtype) @ weight.T * problem.global_scale


PLAIN = Product(
    "weights decoded and multiplied by plain torch operations; no FP4 unit and no compiled kernel",
    plain,
    # x and every code times its scale are exact in bfloat16 and sums are float32, which leaves two
    # roundings of the result, 2^-8 each: as a sum and times the global scale.
    tolerance=2**-7,
    # float32 throughout: a rounding of 2^-24 for each of the 128 terms, at worst.
    cpu_tolerance=INPUTS * 2**-24,
)


def engine_product(problem: Problem, device: str) -> Tensor:
    """The linear layer that answers are computed with, by whatever serves `device`."""
    import torch

    from engine.kernels import nvfp4_ops

    x = problem.x.to(device, torch.float32 if device == "cpu" else torch.bfloat16)
    scales = problem.scales.to(device).view(torch.float8_e4m3fn)
    alpha = torch.tensor(problem.global_scale, device=device)
    result: Tensor = nvfp4_ops(x).nvfp4_linear(x, problem.codes.to(device), scales, alpha)
    return result


ENGINE = replace(PLAIN, what="the engine's own linear layer", run=engine_product)
"""Accumulates in float32 and rounds once, which both tolerances of PLAIN allow for."""


def self_test(device: str, product: Product = ENGINE) -> Row:
    """Multiply on `device` ("cpu", "cuda:N") and compare. Imports torch, takes a context on a card;
    never raises: a device that fails is a row that says so."""
    begin = time.perf_counter()
    where = f"an NVFP4 product on {device} ({product.what})"
    try:
        error = largest_error(device, product)
    except Exception as failure:
        said = (str(failure).strip().splitlines() or [type(failure).__name__])[0]
        return Row(NAME, "no", f"{where} fails: {said}", "", _way_out(device))
    took = f"{time.perf_counter() - begin:.1f} s"
    allowed = product.cpu_tolerance if device == "cpu" else product.tolerance
    found = f"off by {error:.1e} of its terms' sum, {allowed:.1e} allowed"
    if error <= allowed:  # not so for NaN
        return Row(NAME, "ok", f"{where} agrees with the reference: {found}, {took}")
    return Row(NAME, "no", f"{where} is wrong: {found}", "", _way_out(device))


def largest_error(device: str, product: Product = ENGINE) -> float:
    """The largest error of any output over the sum of its terms' absolute values; NaN when any
    output is not a number."""
    problem = make_problem()
    expected, scale = reference(problem)
    result = product.run(problem, device).double().cpu()
    if result.shape != expected.shape:
        raise ValueError(f"the result is {tuple(result.shape)}, not {tuple(expected.shape)}")
    return float(((result - expected).abs() / scale).max())


def make_problem() -> Problem:
    """Every code occurs, scales over eight powers of two; x is exact in bfloat16."""
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, INPUTS, generator=generator).bfloat16().float()
    shape = (OUTPUTS, INPUTS // 2)
    codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    shape = (OUTPUTS, INPUTS // BLOCK)
    scales = torch.randint(0x20, 0x60, shape, generator=generator, dtype=torch.uint8)
    return Problem(x, codes, scales, global_scale=0.0123)


def reference(problem: Problem) -> tuple[Tensor, Tensor]:
    """The product [T, N] in float64, and the sum of its terms' absolute values."""
    import torch

    rows = zip(problem.codes.tolist(), problem.scales.tolist(), strict=True)
    weight = torch.tensor([_weight_row(*row) for row in rows], dtype=torch.float64)
    weight = weight * problem.global_scale
    x = problem.x.double()
    return x @ weight.T, x.abs() @ weight.abs().T


def _weight_row(codes: list[int], scales: list[int]) -> list[float]:
    values = [e2m1(code) for byte in codes for code in (byte & 15, byte >> 4)]
    wide = [e4m3(byte) for byte in scales]
    return [value * wide[place // BLOCK] for place, value in enumerate(values)]


def e2m1(code: int) -> float:
    """The value of a 4-bit code: a sign, two bits of exponent, one of mantissa."""
    magnitude = _MAGNITUDES[code & 7]
    return -magnitude if code & 8 else magnitude


def e4m3(byte: int) -> float:
    """The value of an 8-bit scale: a sign, four bits of exponent (bias 7), three of mantissa."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    value = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -value if byte & 128 else value


def _way_out(device: str) -> str:
    if device == "cpu":
        return "install PyTorch again, and send us the report: orl-chat doctor --report"
    return "answer with --device cpu, and send us the report: orl-chat doctor --report"
