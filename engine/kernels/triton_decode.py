"""What kernels share about NVFP4: codes and scales to numbers in registers, and back.

Everything is integer and float32 arithmetic that every target since sm_80 has, E4M3 included, which
is no type before sm_89. The formats: `engine/kernels/nvfp4_reference.py`.
"""

import triton
import triton.language as tl

# The bits of a code or a scale, shifted into a wider format's exponent and mantissa, are the number
# itself times a power of two (the difference of the exponents' biases), subnormals included.
_CODE_WORTH = tl.constexpr(2.0**63)
_SCALE_WORTH = tl.constexpr(2.0**71)
PRODUCT_WORTH = tl.constexpr(2.0**63)
"""What a product of decoded weights has to be multiplied by: `decode_codes` leaves 2^-126, of which
`decode_scales` gives back half. In one factor neither would be a bf16."""


@triton.jit
def decode_codes(codes):
    """Codes 0..15 in integers to bf16, worth 2^-126 of the value."""
    wide = codes.to(tl.uint16)
    return (((wide & 8) << 12) | ((wide & 7) << 6)).to(tl.bfloat16, bitcast=True)


@triton.jit
def decode_scales(scales):
    """E4M3 bytes (positive) to float32, worth 2^63 of the value; seen as fp16 they are 2^-8."""
    bits = (scales.to(tl.uint16) & 0x7F) << 7
    return bits.to(tl.float16, bitcast=True).to(tl.float32) * _SCALE_WORTH


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
