"""The loop that every matrix kernel has: a tile of weight rows times some rows of activations.

The weights are the matrix units' first operand and the tokens the second, because a step has few
tokens: a tile is then as narrow as 8 or 16 of them, and on sm_100 this is the only form for which
FP4 units exist. `FORM` says what the weights are: "plain" (the activations' own dtype), "w4a16"
(NVFP4, decoded in registers) or "w4a4" (both NVFP4, multiplied as they are).
"""

import triton
import triton.language as tl

from engine.kernels.triton_decode import decode_codes, decode_scales


@triton.jit
def _rows(base, inner, ROW: tl.constexpr, offset, WIDTH: tl.constexpr):
    """Pointers [ROWS, WIDTH] to `WIDTH` elements of rows that begin at base + inner * ROW."""
    return base + inner[:, None] * ROW + offset + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _load(pointers, live, columns_left, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """What stands there; zero for rows that are not live and columns that do not exist."""
    if EVEN:
        return tl.load(pointers)
    column = tl.arange(0, WIDTH)
    return tl.load(pointers, mask=live[:, None] & (column < columns_left)[None, :], other=0)


@triton.jit
def _decoded_product(acc, x_even, x_odd, w, scales, N: tl.constexpr, K: tl.constexpr):
    """acc += decode(w [N, K/2], scales [N, K/16]) x^T. Even and odd columns are products of their
    own: so no decoded weight has to change its place between registers."""
    wide = decode_scales(scales).to(tl.bfloat16)
    wide = tl.reshape(tl.broadcast_to(wide[:, :, None], (N, K // 16, 8)), (N, K // 2))
    even = (decode_codes(w & 15) * wide).to(x_even.dtype)
    odd = (decode_codes(w >> 4) * wide).to(x_even.dtype)
    acc = tl.dot(even, x_even.T, acc, input_precision="ieee")
    return tl.dot(odd, x_odd.T, acc, input_precision="ieee")


@triton.jit
def product(
    x,
    x_scales,
    tokens,
    live,
    w,
    w_scales,
    second,
    second_scales,
    row_live,
    K: tl.constexpr,
    ROW: tl.constexpr,
    STEP: tl.constexpr,
    SCALE_ROW: tl.constexpr,
    SCALE_STEP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN: tl.constexpr,
    FORM: tl.constexpr,
    PAIR: tl.constexpr,
):
    """w x^T, float32 [BN, BM], and with PAIR the same of `second`, for which x is read once.

    x [*, K] is read at the BM rows `tokens` (int64) where `live`; w, w_scales (and second,
    second_scales) point to the first tile of BN rows, with rows ROW and tiles STEP elements apart.
    EVEN: there are BN rows, and K is a whole number of tiles. A w4a16 product is worth 1 /
    `triton_decode.PRODUCT_WORTH` of the true one.
    """
    inner = tl.arange(0, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    other = tl.zeros((BN, BM), tl.float32)
    packed: tl.constexpr = FORM != "plain"
    per: tl.constexpr = 2 if packed else 1
    x_per: tl.constexpr = 2 if FORM == "w4a4" else 1
    for tile in range(0, (K + BK - 1) // BK):
        left = K - tile * BK
        at = _rows(x, tokens, K // x_per, tile * (BK // x_per), BK // x_per)
        column = tl.arange(0, BK // x_per)
        mask = live[:, None]
        if not EVEN:
            mask = mask & (column < left // x_per)[None, :]
        xs = tl.load(at, mask=mask, other=0)
        ws = _load(
            _rows(w, inner, ROW, tile * STEP, BK // per), row_live, left // per, BK // per, EVEN
        )
        if PAIR:
            vs = _load(
                _rows(second, inner, ROW, tile * STEP, BK // per),
                row_live, left // per, BK // per, EVEN,
            )  # fmt: skip
        if packed:
            w_s = _load(
                _rows(w_scales, inner, SCALE_ROW, tile * SCALE_STEP, BK // 16),
                row_live, left // 16, BK // 16, EVEN,
            )  # fmt: skip
            if PAIR:
                v_s = _load(
                    _rows(second_scales, inner, SCALE_ROW, tile * SCALE_STEP, BK // 16),
                    row_live, left // 16, BK // 16, EVEN,
                )  # fmt: skip
        if FORM == "w4a4":
            at = _rows(x_scales, tokens, K // 16, tile * (BK // 16), BK // 16)
            mask = live[:, None]
            if not EVEN:
                mask = mask & (tl.arange(0, BK // 16) < left // 16)[None, :]
            x_s = tl.load(at, mask=mask, other=0).to(tl.float8e4nv, bitcast=True)
            w_s = w_s.to(tl.float8e4nv, bitcast=True)
            acc = tl.dot_scaled(ws, w_s, "e2m1", xs.T, x_s, "e2m1", acc)
            if PAIR:
                v_s = v_s.to(tl.float8e4nv, bitcast=True)
                other = tl.dot_scaled(vs, v_s, "e2m1", xs.T, x_s, "e2m1", other)
        elif FORM == "w4a16":
            x_even, x_odd = tl.split(tl.reshape(xs, (BM, BK // 2, 2)))
            acc = _decoded_product(acc, x_even, x_odd, ws, w_s, BN, BK)
            if PAIR:
                other = _decoded_product(other, x_even, x_odd, vs, v_s, BN, BK)
        else:
            acc = tl.dot(ws, xs.T, acc, input_precision="ieee")
            if PAIR:
                other = tl.dot(vs, xs.T, other, input_precision="ieee")
    return acc, other
