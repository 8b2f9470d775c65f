"""The counter-based Gumbel noise of `engine/decode/unmasking.py`, bit for bit, inside a kernel.

Philox-4x32-10 (Salmon et al., SC 2011) is Triton's own. The logarithm is not: the hardware's has an
absolute error, which near 1 is larger than -log(u) itself.
"""

import triton
import triton.language as tl


@triton.jit
def accurate_log(x):
    """log of positive, normal float32 to about one unit in the last place.

    x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) with s = (m - 1) / (m + 1), whose
    series ends at s^11: |s| < 0.172, so what is left out is below 2^-27 of the first term.
    """
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3 is sqrt(1/2)
    m = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    s = tl.div_rn(m - 1.0, m + 1.0)
    z = s * s
    tail = z * (1.0 / 3 + z * (0.2 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))))
    # ln 2 in two parts, of which the first times any exponent is exact.
    high, low = exponent * 0.693145751953125, exponent * 1.4286068203094172e-06
    return high + (2.0 * s + (2.0 * s * tail + low))


@triton.jit
def uniform_words(seed, first, position, step, COUNT: tl.constexpr):
    """The words of tokens first .. first+COUNT-1 (`first` and COUNT multiples of 4): uint32."""
    counter = (first // 4 + tl.arange(0, COUNT // 4)).to(tl.uint32)
    zero = counter * 0
    a, b, c, d = tl.philox(
        seed, counter, zero + position.to(tl.uint32), zero + step.to(tl.uint32), zero
    )
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (COUNT,))


@triton.jit
def gumbel(seed, first, position, step, COUNT: tl.constexpr):
    """Standard Gumbel noise float32 [COUNT] for tokens first .. of one position in one step."""
    words = uniform_words(seed, first, position, step, COUNT)
    uniform = ((words >> 9).to(tl.int32).to(tl.float32) + 0.5) * (1.0 / 8388608)
    return -accurate_log(-accurate_log(uniform))
