"""What the experts' kernels are made of beside the product: SwiGLU, and a shared expert in the
activations' own dtype beside packed routed ones."""

import triton
import triton.language as tl

from engine.kernels.triton_product import product


@triton.jit
def swiglu(gate, up, DTYPE: tl.constexpr):
    """silu(gate) * up of float32 tiles, rounded where the reference rounds: each product, silu, and
    what they give."""
    g = gate.to(DTYPE).to(tl.float32)
    u = up.to(DTYPE).to(tl.float32)
    s = (g / (1.0 + tl.exp(-g))).to(DTYPE).to(tl.float32)
    return (s * u).to(DTYPE)


@triton.jit
def plain_gate_up(
    x, gate, up, h, tokens, live, tile,
    I: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, TOGETHER: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """h[t] = silu(gate x[t]) * up x[t] for the tokens t (int64) that are `live`, columns tile BN..;
    gate and up [I, K] are linear and of x's dtype."""
    n = tile * BN + tl.arange(0, BN)
    first = tile.to(tl.int64) * BN * K
    g, u = product(
        x, x, tokens, live, gate + first, gate, up + first, up, n < I,
        K, K, BK, 0, 0, BM, BN, BK, EVEN, "plain", TOGETHER,
    )  # fmt: skip
    if not TOGETHER:
        u, _ = product(
            x, x, tokens, live, up + first, up, gate + first, gate, n < I,
            K, K, BK, 0, 0, BM, BN, BK, EVEN, "plain", False,
        )  # fmt: skip
    at = h + tokens[None, :] * I + n[:, None]
    tl.store(at, swiglu(g, u, DTYPE), mask=live[None, :] & (n < I)[:, None])


@triton.jit
def plain_down(
    h, down, out, tokens, pair, live, tile,
    N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """out[p] = down h[t] for the pairs p of the tokens t, columns tile BN..; down [N, K]."""
    n = tile * BN + tl.arange(0, BN)
    first = down + tile.to(tl.int64) * BN * K
    acc, _ = product(
        h, h, tokens, live, first, down, first, down, n < N,
        K, K, BK, 0, 0, BM, BN, BK, EVEN, "plain", False,
    )  # fmt: skip
    at = out + pair[None, :] * N + n[:, None]
    tl.store(at, acc.to(out.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])
