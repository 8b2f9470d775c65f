"""What kernels share about NVFP4: codes and scales to numbers in registers, and back.

Everything is integer and float32 arithmetic that every target since sm_80 has, E4M3 included, which
is no type before sm_89. The formats: `engine/kernels/nvfp4_reference.py`.
"""

import triton
import triton.language as tl

# The bits of a code or a scale, shifted into a wider format's exponent and mantissa, are the number
# itself times a power of two (the difference of the exponents' biases), subnormals included.
_CODE_WORTH = tl.constexpr(2.0**63)
_SCALE_WORTH = tl.constexpr(2.0**127)
_SCALE_REST = tl.constexpr(2.0**56)
PRODUCT_WORTH = tl.constexpr(2.0**63)
"""What a product of decoded weights has to be multiplied by: `decode_codes` leaves 2^-126, of which
`decode_scales` gives back half. In one factor neither would be a bf16."""

_COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)
"""Triton's interpreter knows no assembly."""

# `decode_codes` of two words at once, in halves of a register, where compilers calculate with one
# at a time: a third of the instructions. A product with 2^6 + 2^12 (or, a nibble higher, 2^2 + 2^8)
# puts magnitude and sign to their places.
_DECODE = tl.constexpr("""{
.reg .b32 w, x, y;
mov.b32 w, $4;
shr.u32 y, w, 8;
and.b32 x, w, 0x000F000F;
mul.lo.u32 x, x, 0x1040;
and.b32 $0, x, 0x81C081C0;
and.b32 x, w, 0x00F000F0;
mul.lo.u32 x, x, 0x104;
and.b32 $1, x, 0x81C081C0;
and.b32 x, y, 0x000F000F;
mul.lo.u32 x, x, 0x1040;
and.b32 $2, x, 0x81C081C0;
and.b32 x, y, 0x00F000F0;
mul.lo.u32 x, x, 0x104;
and.b32 $3, x, 0x81C081C0;
}""")


@triton.jit
def decode_codes(codes):
    """Codes 0..15 in integers to bf16, worth 2^-126 of the value."""
    wide = codes.to(tl.uint16)
    return (((wide & 8) << 12) | ((wide & 7) << 6)).to(tl.bfloat16, bitcast=True)


@triton.jit
def decode_words(words):
    """Words of four codes (uint16) to the bf16 of each, the lowest first, as `decode_codes`."""
    if _COMPILED:
        return tl.inline_asm_elementwise(
            _DECODE, "=r,=r,=r,=r,r", [words], (tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True, pack=2,
        )  # fmt: skip
    return (
        decode_codes(words & 15), decode_codes((words >> 4) & 15),
        decode_codes((words >> 8) & 15), decode_codes(words >> 12),
    )  # fmt: skip


@triton.jit
def decode_scales(scales):
    """E4M3 bytes, which loading has found not to be negative, to bf16, worth 2^63 of the value:
    seen as bf16 they are 2^-120, and what makes up for it is no bf16 itself."""
    bits = (scales.to(tl.uint16) << 4).to(tl.bfloat16, bitcast=True)
    first = tl.full([], _SCALE_WORTH, tl.float32).to(tl.bfloat16)
    return bits * first * tl.full([], _SCALE_REST, tl.float32).to(tl.bfloat16)


@triton.jit
def round_scale(x):
    """float32 in [2^-9, 448] to the nearest E4M3, ties to even: (its value, its byte)."""
    bits = x.to(tl.int32, bitcast=True)
    normal = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000
    # Below 2^-6 the numbers are multiples of 2^-9: there a float32 of 1.5 * 2^14 has its last bit.
    small = (x + 24576.0) - 24576.0
    is_small = x < 0.015625
    value = tl.where(is_small, small, normal.to(tl.float32, bitcast=True))
    byte = tl.where(is_small, (small * 512.0).to(tl.int32), (normal >> 20) - (120 << 3))
    return value, byte.to(tl.uint8)


@triton.jit
def nearest_code(x):
    """float32 to the code 0..7 of its magnitude, ties to even, beyond 6 to 6; int32."""
    a = tl.abs(x)
    code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32)
    code += (a >= 1.75).to(tl.int32) + (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32)
    return code + (a > 5.0).to(tl.int32)


@triton.jit
def quantise(x, input_scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """x [ROWS, COLUMNS] float32 to NVFP4 against `input_scale`.

    Returns codes with sign (int32 [ROWS, COLUMNS/16, 16]), the scales' values (float32) and bytes
    (both [ROWS, COLUMNS/16]).
    """
    blocks = tl.reshape(x, (ROWS, COLUMNS // 16, 16))
    scale = tl.div_rn(tl.max(tl.abs(blocks), 2), 6.0 * input_scale)
    scale = tl.where(scale == 0.0, 1.0, scale)
    scale = tl.minimum(tl.maximum(scale, 0.001953125), 448.0)
    value, byte = round_scale(scale)
    unit = tl.broadcast_to((value * input_scale)[:, :, None], (ROWS, COLUMNS // 16, 16))
    scaled = tl.div_rn(blocks, unit)
    code = nearest_code(scaled) | ((scaled < 0).to(tl.int32) << 3)
    return code, value, byte


@triton.jit
def pack(codes, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """int32 codes of COLUMNS columns to uint8 [ROWS, COLUMNS/2], the even one in the low nibble."""
    low, high = tl.split(tl.reshape(codes, (ROWS, COLUMNS // 2, 2)))
    return (low | (high << 4)).to(tl.uint8)


@triton.jit
def unpacked(codes, scales, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `quantise` made, as numbers: code * scale, float32 [ROWS, COLUMNS], exact in bf16."""
    # 2^126 in two factors, neither of which overflows.
    numbers = decode_codes(codes).to(tl.float32) * _CODE_WORTH * _CODE_WORTH
    return tl.reshape(numbers * scales[:, :, None], (ROWS, COLUMNS))
