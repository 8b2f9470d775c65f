"""Kernels in Triton whose matrix products become wgmma or mma.sync, for tests of the emulator."""

import triton
import triton.language as tl


@triton.jit
def product_kernel(  # noqa: PLR0913 - constants of the compiler
    a, b, out,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr,
    IN_REGISTERS: tl.constexpr, ALONG_ROWS: tl.constexpr,
):  # fmt: skip
    """out [M, N] = a [M, K] b [N, K]^T in float32. IN_REGISTERS: a is doubled first, so that it is
    not what lies in memory. ALONG_ROWS: both lie transposed there, [K, M] and [K, N]."""
    row, column, part = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        if ALONG_ROWS:
            left = tl.load(a + (k + part)[None, :] * M + row[:, None])
            right = tl.load(b + (k + part)[:, None] * N + column[None, :])
        else:
            left = tl.load(a + row[:, None] * K + (k + part)[None, :])
            right = tl.load(b + column[None, :] * K + (k + part)[:, None])
        if IN_REGISTERS:
            left = left * 2
        total = tl.dot(left, right, total)
    tl.store(out + row[:, None] * N + column[None, :], total)
