// Numbers as their bits: the formats that PTX has and C++ does not, and rounding to them.
//
// A register of the emulated card is 64 bits wide whatever its declared type is. Who writes one
// fills the low bits; who reads one cuts it to the width of its own type. So `take` and `give` are
// the only ways between registers and numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace emulated {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

template <class T>
T take(u64 bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);  // the host is little-endian, as the card is
    return value;
}

template <class T>
u64 give(T value) {
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

// The low `bits` bits, all of them for 64.
inline u64 low_bits(int bits) {
    return bits >= 64 ? ~0ull : (1ull << bits) - 1;
}

inline i64 sign_extended(u64 value, int bits) {
    if (bits >= 64) return static_cast<i64>(value);
    return static_cast<i64>(value << (64 - bits)) >> (64 - bits);
}

// What the card writes for a number that is none (PTX ISA, section "Floating Point Instructions":
// results are the canonical NaN), where an x86 would keep a payload and even a sign.
constexpr u32 CANONICAL_NAN = 0x7fffffff;
constexpr u16 CANONICAL_NAN_BF16 = 0x7fff;
constexpr u16 CANONICAL_NAN_F16 = 0x7fff;

inline float flushed(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value)
                                                                : value;
}

inline float from_bf16(u64 bits) {
    return take<float>((bits & 0xffff) << 16);
}

// To the nearest, ties to even. By way of a float that was rounded to odd, so that the second
// rounding cannot meet a tie which the first one made.
inline u64 to_bf16(double value) {
    if (std::isnan(value)) return CANONICAL_NAN_BF16;
    const float near = static_cast<float>(value);
    u32 bits = take<u32>(give(near));
    if (static_cast<double>(near) != value && !std::isinf(near)) {
        const bool beyond = std::fabs(static_cast<double>(near)) > std::fabs(value);
        bits = take<u32>(give(beyond ? std::nextafter(near, 0.0f) : near)) | 1;
    }
    bits += 0x7fff + ((bits >> 16) & 1);
    return bits >> 16;
}

inline float from_f16(u64 bits) {
    const u32 sign = (bits >> 15) & 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    float value;
    if (exponent == 0) {
        value = std::ldexp(static_cast<float>(fraction), -24);
    } else if (exponent == 31) {
        value = fraction ? std::nanf("") : std::numeric_limits<float>::infinity();
    } else {
        value = std::ldexp(static_cast<float>(fraction | 1024), static_cast<int>(exponent) - 25);
    }
    return sign ? -value : value;
}

inline u64 to_f16(double value) {
    if (std::isnan(value)) return CANONICAL_NAN_F16;
    const u64 sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (size == 0) return sign;
    if (size >= 65520) return sign | 0x7c00;
    int exponent = 0;
    std::frexp(size, &exponent);
    const int lowest = std::max(exponent - 11, -24);  // the exponent of the last bit that is kept
    const u64 whole = static_cast<u64>(std::nearbyint(std::ldexp(size, -lowest)));
    // A carry out of the fraction goes into the exponent, as it should.
    return sign | (lowest == -24 ? whole : (static_cast<u64>(lowest + 24) << 10) + whole);
}

// Also the scales of NVFP4, whose sign is never set ("ue4m3").
inline float from_e4m3(u32 bits) {
    const u32 exponent = (bits >> 3) & 15, fraction = bits & 7;
    float value;
    if (exponent == 15 && fraction == 7) {
        value = std::nanf("");
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<float>(fraction), -9);
    } else {
        value = std::ldexp(static_cast<float>(fraction | 8), static_cast<int>(exponent) - 10);
    }
    return bits & 0x80 ? -value : value;
}

inline float from_e2m1(u32 code) {
    static constexpr std::array<float, 8> sizes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const float size = sizes[code & 7];
    return code & 8 ? -size : size;
}

}  // namespace emulated
