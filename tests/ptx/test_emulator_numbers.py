"""The emulator's arithmetic on hand-written PTX: the edges of integers, fields and bytes, and
conversions, against Python's integers and torch's roundings."""

import math

import pytest
import torch
from torch import Tensor

from tests.ptx.assembly import integers, lanewise
from tests.ptx.library import Refused, can_build

# Slow is only building it, which would not be worth it beside the fast tests.
pytestmark = [
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]

EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xDEAD_BEEF, 0xFFFF_FFFF]


def signed(value: int, bits: int = 32) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def extracted(value: int, position: int, length: int, *, sign: bool) -> int:
    """PTX ISA, section "bfe", bit by bit."""
    last = value >> min(position + length - 1, 31) & 1 if sign and length else 0
    bits = [
        value >> (position + i) & 1 if i < length and position + i <= 31 else last
        for i in range(32)
    ]
    return sum(bit << i for i, bit in enumerate(bits))


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("value", EDGES)
def test_fields_are_extracted(value: int, sign: bool) -> None:
    fields = [(p, n) for p in (0, 1, 7, 31, 32, 255) for n in (0, 1, 8, 32, 255)]
    found = lanewise(
        f"bfe.{'s' if sign else 'u'}32 %out, %a, %b, %c;",
        integers([value] * len(fields)), *(integers(x) for x in zip(*fields, strict=True)),
    )  # fmt: skip
    wanted = [extracted(value, *field, sign=sign) for field in fields]
    assert torch.equal(found, integers(wanted))


def test_fields_are_inserted() -> None:
    fields = [(p, n) for p in (0, 4, 31, 32) for n in (0, 1, 8, 32, 40)]
    found = lanewise(
        "bfi.b32 %out, %a, %b, %c, %e;",
        integers([0x1234_5678] * len(fields)), integers([0xFFFF_0000] * len(fields)),
        *(integers(x) for x in zip(*fields, strict=True)),
    )  # fmt: skip
    wanted = []
    for position, length in fields:
        mask = ((1 << length) - 1 << position) & 0xFFFF_FFFF
        wanted.append(0xFFFF_0000 & ~mask | (0x1234_5678 << position) & mask)
    assert torch.equal(found, integers(wanted))


def test_bytes_are_permuted_and_their_signs_copied() -> None:
    selectors = [0x3210, 0x7654, 0x5140, 0x8888, 0xFEDC, 0xBA98]
    low, high = 0x80_7F_FF_01, 0x12_F0_0F_81
    every = [low >> 8 * i & 255 for i in range(4)] + [high >> 8 * i & 255 for i in range(4)]
    wanted = []
    for selector in selectors:
        nibbles = [selector >> 4 * i & 15 for i in range(4)]
        parts = [every[n & 7] if n < 8 else 255 * (every[n & 7] >> 7) for n in nibbles]
        wanted.append(sum(part << 8 * i for i, part in enumerate(parts)))
    found = lanewise(
        "prmt.b32 %out, %a, %b, %c;",
        integers([low] * len(selectors)), integers([high] * len(selectors)), integers(selectors),
    )  # fmt: skip
    assert torch.equal(found, integers(wanted))


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_two_registers_are_shifted_as_one(side: str, mode: str) -> None:
    distances = [0, 1, 16, 31, 32, 33, 64]
    low, high = 0x8765_4321, 0xFEDC_BA98
    wanted = []
    for distance in distances:
        n = distance % 32 if mode == "wrap" else min(distance, 32)
        both = high << 32 | low
        wanted.append((both << n) >> 32 & 0xFFFF_FFFF if side == "l" else both >> n & 0xFFFF_FFFF)
    found = lanewise(
        f"shf.{side}.{mode}.b32 %out, %a, %b, %c;",
        integers([low] * 7), integers([high] * 7), integers(distances),
    )  # fmt: skip
    assert torch.equal(found, integers(wanted))


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_products_of_edges(kind: str) -> None:
    pairs = [(a, b) for a in EDGES[-5:] for b in EDGES[-5:]]
    left, right = (integers(x) for x in zip(*pairs, strict=True))
    exact = [signed(a) * signed(b) if kind == "s32" else a * b for a, b in pairs]
    high = lanewise(f"mul.hi.{kind} %out, %a, %b;", left, right)
    assert torch.equal(high, integers([product >> 32 for product in exact]))
    low = lanewise(f"mul.lo.{kind} %out, %a, %b;", left, right)
    assert torch.equal(low, integers(exact))
    wide = lanewise(f"mul.wide.{kind} %out, %a, %b;", left, right, out=torch.int64)
    assert torch.equal(wide, integers(exact, torch.int64))


def test_shifts_beyond_the_width() -> None:
    values, distances = integers([0x8000_0001] * 4), integers([0, 31, 32, 100])
    for operation, wanted in (
        ("shl.b32", [0x8000_0001, 0x8000_0000, 0, 0]),
        ("shr.u32", [0x8000_0001, 1, 0, 0]),
        ("shr.s32", [0x8000_0001, -1, -1, -1]),
    ):
        found = lanewise(f"{operation} %out, %a, %b;", values, distances)
        assert torch.equal(found, integers(wanted)), operation


def test_division_goes_to_zero_and_its_edge_wraps() -> None:
    a, b = integers([-7, 7, -(1 << 31)]), integers([2, -2, -1])
    assert lanewise("div.s32 %out, %a, %b;", a, b).tolist() == [-3, -3, -(1 << 31)]
    assert lanewise("rem.s32 %out, %a, %b;", a, b).tolist() == [-1, 1, 0]


def test_any_function_of_three_bits() -> None:
    a, b, c = integers([0x0F0F_0F0F]), integers([0x3333_3333]), integers([0x5555_5555])
    assert torch.equal(lanewise("lop3.b32 %out, %a, %b, %c, 0x96;", a, b, c), a ^ b ^ c)
    assert torch.equal(lanewise("lop3.b32 %out, %a, %b, %c, 0xca;", a, b, c), a & b | ~a & c)


FLOATS = [
    0.0, -0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3.4e38, 1e-40,
    math.inf, -math.inf, math.nan, 65504.0, 65520.0, 2.0**-24, 2.0**-25, 1 + 2**-11, 6e-5,
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_float32_is_rounded_as_in_torch(kind: str, dtype: torch.dtype) -> None:
    values = torch.tensor(FLOATS)
    held = values.view(torch.int32)
    found = lanewise(f"cvt.rn.{kind}.f32 %out, %a;", held, out=torch.int16)
    same(found.view(dtype), values.to(dtype))
    pairs = lanewise(f"cvt.rn.{kind}x2.f32 %out, %a, %b;", held, held.roll(1))
    halves = pairs.view(dtype).view(-1, 2)
    same(halves[:, 1], values.to(dtype))
    same(halves[:, 0], values.to(dtype).roll(1))
    back = lanewise(f"cvt.f32.{kind} %out, %a;", values.to(dtype).view(torch.int16))
    same(back.view(torch.float32), values.to(dtype).float())


def same(found: Tensor, wanted: Tensor) -> None:
    """Equal bits, but for what a NaN carries."""
    assert torch.equal(found.isnan(), wanted.isnan())
    kept = ~wanted.isnan()
    whole = {2: torch.int16, 4: torch.int32}[wanted.itemsize]
    assert torch.equal(found[kept].view(whole), wanted[kept].view(whole))


def test_a_number_that_is_none_is_the_canonical_one() -> None:
    infinite = torch.tensor([math.inf, -math.inf]).view(torch.int32)
    found = lanewise("add.f32 %out, %a, %b;", infinite, infinite.flip(0))
    assert found.tolist() == [0x7FFF_FFFF] * 2


def test_floats_become_integers() -> None:
    values = torch.tensor([2.5, 3.5, -2.5, -0.5, math.nan, math.inf, -math.inf, 3e9, -3e9])
    held, top, bottom = values.view(torch.int32), (1 << 31) - 1, -(1 << 31)
    ends = [0, top, bottom, top, bottom]
    for rounding, wanted in (
        ("rni", [2, 4, -2, 0]), ("rzi", [2, 3, -2, 0]), ("rmi", [2, 3, -3, -1]),
        ("rpi", [3, 4, -2, 0]),
    ):  # fmt: skip
        found = lanewise(f"cvt.{rounding}.s32.f32 %out, %a;", held)
        assert found.tolist() == wanted + ends, rounding
    found = lanewise("cvt.rzi.u32.f32 %out, %a;", held)
    assert torch.equal(found, integers([2, 3, 0, 0, 0, (1 << 32) - 1, 0, 3_000_000_000, 0]))


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_bf16_arithmetic_is_rounded_once(operation: str) -> None:
    torch.manual_seed(0)
    a, b, c = (torch.randn(32, 2).bfloat16() for _ in range(3))
    wide = [x.double() for x in (a, b, c)]
    exact = {
        "add": wide[0] + wide[1], "sub": wide[0] - wide[1], "mul": wide[0] * wide[1],
        "fma": wide[0] * wide[1] + wide[2],
    }[operation]  # fmt: skip
    inputs = [x.view(torch.int32).flatten() for x in (a, b, c)[: 3 if operation == "fma" else 2]]
    names = ", ".join(f"%{name}" for name in "abc"[: len(inputs)])
    found = lanewise(f"{operation}.rn.bf16x2 %out, {names};", *inputs).view(torch.bfloat16)
    # To the nearest of the two neighbours: no rounding of torch's own is between.
    error = (found.view(32, 2).double() - exact).abs()
    step = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 8)
    assert (error <= step / 2).all()


@pytest.mark.parametrize(("operation", "larger"), [("min", False), ("max", True)])
def test_smaller_and_larger(operation: str, larger: bool) -> None:
    a = torch.tensor([1.0, math.nan, math.nan, 0.0, -0.0]).view(torch.int32)
    b = torch.tensor([2.0, 3.0, math.nan, -0.0, 0.0]).view(torch.int32)
    zero = 0.0 if larger else -0.0
    wanted = torch.tensor([2.0 if larger else 1.0, 3.0, math.nan, zero, zero])
    same(lanewise(f"{operation}.f32 %out, %a, %b;", a, b).view(torch.float32), wanted)
    wanted[1] = math.nan
    same(lanewise(f"{operation}.NaN.f32 %out, %a, %b;", a, b).view(torch.float32), wanted)


@pytest.mark.parametrize(("operation", "larger"), [("min", False), ("max", True)])
def test_the_smallest_and_largest_of_three(operation: str, larger: bool) -> None:
    values = torch.tensor([1.0, 2.0, 3.0, math.nan, -math.inf, -0.0, 0.0])
    a, b, c = (x.flatten() for x in torch.meshgrid(values, values[1:4], values, indexing="ij"))
    for first in range(0, len(a), 32):
        parts = [x[first : first + 32].contiguous().view(torch.int32) for x in (a, b, c)]
        two = lanewise(f"{operation}.f32 %r1, %a, %b; {operation}.f32 %out, %r1, %c;", *parts)
        assert torch.equal(lanewise(f"{operation}.f32 %out, %a, %b, %c;", *parts), two)
    largest = lanewise(f"{operation}.f32 %out, %a, %b, %c;", *(integers([n]) for n in (0, 9, 5)))
    assert largest.item() == (9 if larger else 0)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_pairs_of_float32(operation: str) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 32, 2)
    wanted = {"add": a + b, "sub": a - b, "mul": a * b}[operation]
    found = lanewise(
        f"{operation}.rn.f32x2 %out, %a, %b;", *(x.view(torch.int64).flatten() for x in (a, b)),
        out=torch.int64,
    )  # fmt: skip
    assert torch.equal(found.view(torch.float32).view(32, 2), wanted)


def test_an_operand_too_many_is_refused() -> None:
    for instruction in ("add.f32 %out, %a, %b, %c;", "max.s32 %out, %a, %b, %c;"):
        with pytest.raises(Refused, match="not known"):
            lanewise(instruction, *(integers([1]) for _ in range(3)))


@pytest.mark.parametrize(
    ("comparison", "wanted"),
    [
        ("lt", [1, 0, 0, 0]), ("le", [1, 1, 0, 0]), ("eq", [0, 1, 0, 0]), ("ne", [1, 0, 1, 0]),
        ("neu", [1, 0, 1, 1]), ("geu", [0, 1, 1, 1]), ("nan", [0, 0, 0, 1]), ("num", [1, 1, 1, 0]),
    ],
)  # fmt: skip
def test_comparisons(comparison: str, wanted: list[int]) -> None:
    a = torch.tensor([1.0, 2.0, 3.0, math.nan]).view(torch.int32)
    b = torch.full((4,), 2.0).view(torch.int32)
    found = lanewise(
        f"setp.{comparison}.f32 %p1|%p2, %a, %b; selp.b32 %out, 1, 0, %p1;\n"
        "@%p2 add.s32 %out, %out, 2;", a, b,
    )  # fmt: skip
    assert found.tolist() == [1 if yes else 2 for yes in wanted]
