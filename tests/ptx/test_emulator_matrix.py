"""The emulator's matrix instructions: mma.sync from fragments that are put together here, after the
tables of the PTX ISA, and what Triton makes of a product, against numpy and torch."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from tests.ptx.assembly import launch
from tests.ptx.library import can_build

# Slow is only building it, which would not be worth it beside the fast tests.
pytestmark = [
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")

LANE = np.arange(32)
GROUP, PLACE = LANE // 4, LANE % 4
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def multiplied(instruction: str, operands: list[np.ndarray]) -> np.ndarray:
    """D [16, 8] of an mma.sync; operands are A, B, C and scales, [registers, 32] each."""
    lines, count, names = ["mul.wide.u32 %d20, %tid, 4;"], 4, []
    for i, operand in enumerate(operands):
        own = [f"%r{count + j}" for j in range(len(operand))]
        count += len(own)
        names.append("{" + ", ".join(own) + "}")
        lines.append(f"add.s64 %d21, %d{i}, %d20;")
        lines += [f"ld.global.b32 {one}, [%d21 + {128 * j}];" for j, one in enumerate(own)]
    lines += [instruction.format("{%r0, %r1, %r2, %r3}", *names)]
    lines += [f"add.s64 %d21, %d{len(operands)}, %d20;"]
    lines += [f"st.global.b32 [%d21 + {128 * j}], %r{j};" for j in range(4)]
    found = torch.zeros(4, 32, dtype=torch.int32)
    held = [torch.from_numpy(np.ascontiguousarray(x).view(np.int32)) for x in operands]
    launch("\n".join(lines), *held, found)
    out = np.zeros((16, 8), np.float32)
    for i in range(4):
        out[GROUP + 8 * (i // 2), 2 * PLACE + i % 2] = found[i].view(torch.float32).numpy()
    return out


def accumulators(c: np.ndarray) -> np.ndarray:
    return np.stack([c[GROUP + 8 * (i // 2), 2 * PLACE + i % 2] for i in range(4)])


def pairs(elements: list[np.ndarray]) -> np.ndarray:
    """Registers of two 16-bit elements each, the first one low."""
    bits = [e.astype(np.uint32) for e in elements]
    return np.stack([bits[i] | bits[i + 1] << 16 for i in range(0, len(bits), 2)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_16_bit_products(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(16, 16).to(dtype), torch.randn(16, 8).to(dtype)
    c = torch.randn(16, 8).numpy()
    held_a, held_b = (x.view(torch.int16).numpy().view(np.uint16) for x in (a, b))
    rows = pairs(
        [held_a[GROUP + 8 * (i // 2 % 2), 2 * PLACE + i % 2 + 8 * (i // 4)] for i in range(8)]
    )
    columns = pairs([held_b[2 * PLACE + i % 2 + 8 * (i // 2), GROUP] for i in range(4)])
    kind = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    name = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    found = multiplied(name + " {}, {}, {}, {};", [rows, columns, accumulators(c)])
    wanted = (a.double() @ b.double()).numpy() + c
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("thread_a", [0, 1])
@pytest.mark.parametrize("thread_b", [0, 1, 2, 3])
def test_nvfp4_products(thread_a: int, thread_b: int) -> None:
    """Every code, and in each scale register four scales of which a NaN would show if it were taken
    from a lane that is not asked."""
    draw = np.random.default_rng(4 * thread_a + thread_b)
    a, b = draw.integers(0, 16, (16, 64)), draw.integers(0, 16, (64, 8))
    a_scales, b_scales = draw.integers(0, 127, (16, 4)), draw.integers(0, 127, (8, 4))
    c = draw.standard_normal((16, 8)).astype(np.float32)

    def packed(codes: list[np.ndarray]) -> np.ndarray:
        return sum(code.astype(np.uint32) << np.uint32(4 * j) for j, code in enumerate(codes))

    columns = [8 * PLACE + j for j in range(8)]
    rows = [packed([a[GROUP + 8 * (i % 2), k + 32 * (i // 2)] for k in columns]) for i in range(4)]
    right = [packed([b[k + 32 * i, GROUP] for k in columns]) for i in range(2)]
    left_scales, right_scales = (np.full(32, 0x7F7F7F7F, np.uint32) for _ in range(2))
    for lane in LANE:
        if PLACE[lane] // 2 == thread_a:
            row = a_scales[GROUP[lane] + 8 * (PLACE[lane] % 2)]
            left_scales[lane] = sum(int(s) << 8 * j for j, s in enumerate(row))
        if PLACE[lane] == thread_b:
            right_scales[lane] = sum(int(s) << 8 * j for j, s in enumerate(b_scales[GROUP[lane]]))
    name = (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
        ".f32.e2m1.e2m1.f32.ue4m3"
    )
    ids = f", {{{{0, {thread_a}}}}}, {{}}, {{{{0, {thread_b}}}}};"
    found = multiplied(
        name + " {}, {}, {}, {}, {}" + ids,
        [
            np.stack(rows), np.stack(right), accumulators(c), left_scales[None],
            right_scales[None],
        ],
    )  # fmt: skip
    worth = [
        torch.from_numpy(s.astype(np.uint8)).view(torch.float8_e4m3fn).double().numpy()
        for s in (a_scales, b_scales)
    ]
    left = E2M1[a] * np.repeat(worth[0], 16, 1)
    wanted = left @ (E2M1[b] * np.repeat(worth[1], 16, 1).T) + c
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@needs_triton
@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("shape", [(64, 64, 64), (64, 16, 32), (128, 32, 128), (64, 128, 16)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_triton_products(
    arch: str, shape: tuple[int, int, int], in_registers: bool, along_rows: bool
) -> None:
    from tests.ptx.card import Card, emulated
    from tests.ptx.kernels import product_kernel

    m, n, depth = shape
    torch.manual_seed(n)
    a, b = torch.randn(m, 2 * depth).bfloat16(), torch.randn(n, 2 * depth).bfloat16()
    out = torch.empty(m, n)
    with emulated(Card(arch)):
        held = [x.T.contiguous() if along_rows else x for x in (a, b)]
        ptx = product_kernel[(1,)](
            *held, out, M=m, N=n, K=2 * depth, BK=depth, IN_REGISTERS=in_registers,
            ALONG_ROWS=along_rows, enable_fp_fusion=False,
        ).asm["ptx"]  # fmt: skip
        # Triton 3.9 asks for the driver too when it lets a kernel go.
        product_kernel.device_caches.clear()
    wanted = (a.double() @ b.double().T) * (2 if in_registers else 1)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-4)
    assert ("wgmma.mma_async" if arch == "sm_90" else "mma.sync") in ptx
