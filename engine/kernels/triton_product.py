"""The loop that every matrix kernel has: a tile of weight rows times some rows of activations.

The weights are the matrix units' first operand and the tokens the second, because a step has few
tokens: a tile is then as narrow as 8 or 16 of them, and on sm_100 this is the only form for which
FP4 units exist. `FORM` says what the weights are: "plain" (the activations' own dtype), "w4a16"
(NVFP4, decoded in registers), "w4a16_whole" (the same in one product, for sm_100) or "w4a4" (both
NVFP4, multiplied as they are).
"""

import triton
import triton.language as tl

from engine.kernels.triton_decode import PRODUCT_WORTH, decode_scales, decode_words


@triton.jit
def _load(
    base, rows, live, left, ROW: tl.constexpr, WIDTH: tl.constexpr,
    MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """WIDTH elements of each of `rows`, which are ROW apart; zero for those that are not live, and
    from the `left`-th on."""
    column = tl.arange(0, WIDTH)[None, :]
    pointers = base + rows[:, None] * ROW + column
    if MASK_COLUMNS:
        loaded = tl.load(pointers, mask=live[:, None] & (column < left), other=0)
    elif MASK_ROWS:
        loaded = tl.load(pointers, mask=live[:, None], other=0)
    else:
        loaded = tl.load(pointers)
    return loaded


@triton.jit
def _weights(
    w, scales, tile, live, left,
    ROW: tl.constexpr, STEP: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """A tile of weights [BN, BK] and its scales; without scales, itself twice. What is to be
    decoded comes in words of four."""
    rows = tl.arange(0, BN)
    masked: tl.constexpr = not EVEN
    if FORM == "plain":
        codes = _load(w + tile * STEP, rows, live, left, ROW, BK, masked, masked)
        beside = codes
    else:
        if FORM != "w4a4":
            words = (w + tile * STEP).to(tl.pointer_type(tl.uint16))
            codes = _load(words, rows, live, left // 4, ROW // 2, BK // 4, masked, masked)
        else:
            codes = _load(w + tile * STEP, rows, live, left // 2, ROW, BK // 2, masked, masked)
        at = scales + tile * SCALE_STEP
        beside = _load(at, rows, live, left // 16, SCALE_ROW, BK // 16, masked, masked)
    return codes, beside


@triton.jit
def _decoded_product(
    acc, x, words, scales,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """acc += decode(words [N, K/4], scales [N, K/16]) x [M, K]^T.

    The columns k = i mod 4 are a product of their own: so no decoded weight has to change its place
    between registers. WHOLE: they are one, where products wait for each other.
    """
    wide = decode_scales(scales)
    wide = tl.reshape(tl.broadcast_to(wide[:, :, None], (N, K // 16, 4)), (N, K // 4))
    w0, w1, w2, w3 = decode_words(words)
    w0, w1, w2, w3 = w0 * wide, w1 * wide, w2 * wide, w3 * wide
    if WHOLE:
        even = tl.reshape(tl.join(w0, w2), (N, K // 2))
        odd = tl.reshape(tl.join(w1, w3), (N, K // 2))
        whole = tl.reshape(tl.join(even, odd), (N, K)).to(x.dtype)
        acc = tl.dot(whole, x.T, acc, input_precision="ieee")
    else:
        even, odd = tl.split(tl.reshape(x, (M, K // 2, 2)))
        x0, x2 = tl.split(tl.reshape(even, (M, K // 4, 2)))
        x1, x3 = tl.split(tl.reshape(odd, (M, K // 4, 2)))
        acc = tl.dot(w0.to(x.dtype), x0.T, acc, input_precision="ieee")
        acc = tl.dot(w1.to(x.dtype), x1.T, acc, input_precision="ieee")
        acc = tl.dot(w2.to(x.dtype), x2.T, acc, input_precision="ieee")
        acc = tl.dot(w3.to(x.dtype), x3.T, acc, input_precision="ieee")
    return acc


@triton.jit
def _multiply(
    acc, w, w_scales, x, x_scales,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """acc + w x^T for a tile of each."""
    if FORM == "w4a4":
        w_scales = w_scales.to(tl.float8e4nv, bitcast=True)
        x_scales = x_scales.to(tl.float8e4nv, bitcast=True)
        acc = tl.dot_scaled(w, w_scales, "e2m1", x.T, x_scales, "e2m1", acc)
    elif FORM == "plain":
        acc = tl.dot(w, x.T, acc, input_precision="ieee")
    else:
        acc = _decoded_product(acc, x, w, w_scales, BM, BN, BK, FORM == "w4a16_whole")
    return acc


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
    EVEN: there are BN rows, and K is a whole number of tiles. A product of decoded weights is
    worth 1 / `triton_decode.PRODUCT_WORTH` of the true one.
    """
    acc = tl.zeros((BN, BM), tl.float32)
    other = tl.zeros((BN, BM), tl.float32)
    per: tl.constexpr = 2 if FORM == "w4a4" else 1
    masked: tl.constexpr = not EVEN
    for tile in range((K + BK - 1) // BK):
        left = K - tile * BK
        at = x + tile * (BK // per)
        xs = _load(at, tokens, live, left // per, K // per, BK // per, True, masked)
        x_s = xs
        if FORM == "w4a4":
            at = x_scales + tile * (BK // 16)
            x_s = _load(at, tokens, live, left // 16, K // 16, BK // 16, True, masked)
        ws, w_s = _weights(
            w, w_scales, tile, row_live, left, ROW, STEP, SCALE_ROW, SCALE_STEP, BN, BK, EVEN,
            FORM,
        )  # fmt: skip
        acc = _multiply(acc, ws, w_s, xs, x_s, BM, BN, BK, FORM)
        if PAIR:
            vs, v_s = _weights(
                second, second_scales, tile, row_live, left, ROW, STEP, SCALE_ROW, SCALE_STEP,
                BN, BK, EVEN, FORM,
            )  # fmt: skip
            other = _multiply(other, vs, v_s, xs, x_s, BM, BN, BK, FORM)
    return acc, other


@triton.jit
def worth(alpha, x_scale, FORM: tl.constexpr, SCALED: tl.constexpr):
    """What multiplies a product: 1 for plain weights, else alpha times the input's scale."""
    result = 1.0
    if FORM != "plain":
        result = tl.load(alpha)
        if SCALED:
            result = result * tl.load(x_scale)
        if FORM != "w4a4":
            result = result * PRODUCT_WORTH
    return result
