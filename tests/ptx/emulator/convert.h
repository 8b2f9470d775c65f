// cvt: from one type to another, with the rounding that the instruction names.
#pragma once

#include "lanewise.h"

namespace emulated {

inline double read_float(Type type, u64 held) {
    switch (type) {
        case Type::F16: return from_f16(held);
        case Type::BF16: return from_bf16(held);
        case Type::F32: return take<float>(held);
        default: return take<double>(held);
    }
}

inline u64 write_float(const Instruction& by, Type type, double value) {
    switch (type) {
        case Type::F16: return to_f16(value);
        case Type::BF16:
            if (by.rounding == Rounding::Zero) return give(static_cast<float>(value)) >> 16;
            return to_bf16(value);
        case Type::F32: return Single::write(static_cast<float>(value));
        default: return give(value);
    }
}

inline double rounded_to_whole(double value, Rounding rounding) {
    switch (rounding) {
        case Rounding::Zero: return std::trunc(value);
        case Rounding::Down: return std::floor(value);
        case Rounding::Up: return std::ceil(value);
        default: return std::nearbyint(value);
    }
}

// Beyond the ends it stops there; what is no number becomes 0, or the lowest of 64 bits (PTX ISA,
// section "cvt").
inline u64 float_to_integer(const Instruction& by, double value) {
    const int bits = bits_of(by.type);
    if (std::isnan(value)) return bits == 64 ? 1ull << 63 : 0;
    value = rounded_to_whole(value, by.rounding);
    if (is_signed(by.type)) {
        const double end = std::ldexp(1.0, bits - 1);
        if (value >= end) return low_bits(bits - 1);
        return static_cast<u64>(static_cast<i64>(std::max(value, -end))) & low_bits(bits);
    }
    if (value >= std::ldexp(1.0, bits)) return low_bits(bits);
    return value < 0 ? 0 : static_cast<u64>(value);
}

inline u64 integer_to_float(const Instruction& by, u64 held) {
    const int bits = bits_of(by.source);
    const u64 plain = held & low_bits(bits);
    const bool negative = is_signed(by.source) && sign_extended(plain, bits) < 0;
    if (by.type == Type::F32) {  // by way of a double it would be rounded twice
        return give(negative ? static_cast<float>(sign_extended(plain, bits))
                             : static_cast<float>(plain));
    }
    const double value = negative ? static_cast<double>(sign_extended(plain, bits))
                                  : static_cast<double>(plain);
    return write_float(by, by.type, value);
}

inline u64 integer_to_integer(const Instruction& by, u64 held) {
    const int from = bits_of(by.source), to = bits_of(by.type);
    const u64 plain = held & low_bits(from);
    if (!by.saturate) {
        const u64 wide = is_signed(by.source) ? static_cast<u64>(sign_extended(plain, from))
                                              : plain;
        return wide & low_bits(to);
    }
    const __int128 value = is_signed(by.source) ? static_cast<__int128>(sign_extended(plain, from))
                                                : static_cast<__int128>(plain);
    const bool is_from_below = is_signed(by.type);
    const __int128 top = static_cast<__int128>(low_bits(is_from_below ? to - 1 : to));
    const __int128 bottom = is_from_below ? -top - 1 : 0;
    return static_cast<u64>(std::min(std::max(value, bottom), top)) & low_bits(to);
}

inline u64 converted(const Instruction& by, u64 held) {
    if (!is_float(by.source)) {
        return is_float(by.type) ? integer_to_float(by, held) : integer_to_integer(by, held);
    }
    double value = read_float(by.source, held);
    if (!is_float(by.type)) return float_to_integer(by, value);
    if (by.to_whole) value = rounded_to_whole(value, by.rounding);
    return write_float(by, by.type, value);
}

inline void convert(const Instruction& by, u32 mask, const Sources& from, u64* out) {
    each_lane(mask, [&](int lane) { out[lane] = converted(by, from[0][lane]); });
}

// The two conversions that make up nearly all of them, without a choice for each lane.
inline void widen_bf16(const Instruction&, u32 mask, const Sources& from, u64* out) {
    each_lane(mask, [&](int lane) {
        out[lane] = Single::write(from_bf16(from[0][lane]));
    });
}

// Two float32 numbers to one register; the first operand becomes the upper half.
template <class Element>
void narrow_pair(const Instruction&, u32 mask, const Sources& from, u64* out) {
    each_lane(mask, [&](int lane) {
        const u64 high = Element::write(take<float>(from[0][lane]));
        out[lane] = high << 16 | Element::write(take<float>(from[1][lane]));
    });
}

inline bool rounds_as_written(const Instruction& by) {
    if (!is_float(by.type)) return true;
    if (by.has("rm") || by.has("rp") || by.has("relu") || by.saturate) return false;
    return !by.has("rz") || by.type == Type::BF16;
}

// nullptr for those that are not known.
inline Lanewise conversion(const Instruction& by) {
    if (by.source == Type::F32 && by.type == Type::BF16x2 && by.has("rn")) {
        return narrow_pair<Brain>;
    }
    if (by.source == Type::F32 && by.type == Type::F16x2 && by.has("rn")) return narrow_pair<Half>;
    if (by.source == Type::BF16 && by.type == Type::F32) return widen_bf16;
    const auto single = [](Type type) { return is_float(type) || !holds_floats(type); };
    const bool known = by.source != Type::None && single(by.type) && single(by.source);
    return known && rounds_as_written(by) ? convert : nullptr;
}

}  // namespace emulated
