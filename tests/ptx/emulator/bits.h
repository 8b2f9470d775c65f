// Operations on the bits of a register: logic, shifts, fields, bytes.
#pragma once

#include "lanewise.h"

namespace emulated {

struct And {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        return a & b;
    }
};

struct Or {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        return a | b;
    }
};

struct Xor {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        return a ^ b;
    }
};

struct Not {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        if constexpr (std::is_same_v<T, bool>) {
            return !a;
        } else {
            return static_cast<T>(~a);
        }
    }
};

// Shifts by the width or more give zeros, or copies of the sign (PTX ISA, sections "shl", "shr").
template <class T>
struct ShiftLeft {
    static constexpr int inputs = 2;
    static u64 apply(const Instruction&, u64 a, u64 by) {
        const u32 distance = static_cast<u32>(by);
        return distance >= 8 * sizeof(T) ? 0 : give(static_cast<T>(take<T>(a) << distance));
    }
};

template <class T>
struct ShiftRight {
    static constexpr int inputs = 2;
    static u64 apply(const Instruction&, u64 a, u64 by) {
        u32 distance = static_cast<u32>(by);
        constexpr u32 width = 8 * sizeof(T);
        if (distance >= width) {
            if (!std::is_signed_v<T>) return 0;
            distance = width - 1;
        }
        return give(static_cast<T>(take<T>(a) >> distance));
    }
};

// A predicate chooses between two values.
template <class T>
struct Select {
    static constexpr int inputs = 3;
    static u64 apply(const Instruction&, u64 a, u64 b, u64 first) {
        return give(take<T>(first & 1 ? a : b));
    }
};

// `length` bits from `position` on, filled up with zeros or with the field's sign, which is the
// number's own where the field reaches beyond it (PTX ISA, section "bfe").
template <class T>
struct ExtractField {
    static constexpr int inputs = 3;
    static u64 apply(const Instruction&, u64 a, u64 from, u64 of) {
        constexpr int width = 8 * sizeof(T);
        const int position = static_cast<int>(from & 255), length = static_cast<int>(of & 255);
        const T value = take<T>(a);
        if constexpr (std::is_signed_v<T>) {
            if (length == 0) return 0;
            const i64 shifted = static_cast<i64>(value) >> std::min(position, 63);
            return static_cast<u64>(sign_extended(static_cast<u64>(shifted), length)) &
                   low_bits(width);
        } else {
            return position < width ? (static_cast<u64>(value) >> position) & low_bits(length) : 0;
        }
    }
};

inline void insert_field(const Instruction& by, u32 mask, const Sources& from, u64* out) {
    const u64 whole = low_bits(bits_of(by.type));
    each_lane(mask, [&](int lane) {
        const int position = from[2][lane] & 255, length = from[3][lane] & 255;
        const u64 field = position > 63 ? 0 : low_bits(length) << position;
        const u64 inserted = position > 63 ? 0 : from[0][lane] << position;
        out[lane] = ((from[1][lane] & ~field) | (inserted & field)) & whole;
    });
}

template <class T>
struct CountOnes {
    static constexpr int inputs = 1;
    static u64 apply(const Instruction&, u64 a) {
        return static_cast<u64>(__builtin_popcountll(take<T>(a)));
    }
};

template <class T>
struct CountLeadingZeros {
    static constexpr int inputs = 1;
    static u64 apply(const Instruction&, u64 a) {
        constexpr int width = 8 * sizeof(T);
        const u64 value = take<T>(a);
        return value ? static_cast<u64>(__builtin_clzll(value) - (64 - width)) : width;
    }
};

template <class T>
struct ReverseBits {
    static constexpr int inputs = 1;
    static u64 apply(const Instruction&, u64 a) {
        u64 result = 0;
        for (unsigned bit = 0; bit < 8 * sizeof(T); bit++) result = result << 1 | (a >> bit & 1);
        return result;
    }
};

// Four bytes of eight, each by a nibble of the selector, whose top bit asks for copies of the
// byte's sign instead (PTX ISA, section "prmt", the mode without a name).
struct PermuteBytes {
    static constexpr int inputs = 3;
    static u64 apply(const Instruction&, u64 a, u64 b, u64 selector) {
        const u64 bytes = (a & 0xffffffff) | b << 32;
        u64 result = 0;
        for (int place = 0; place < 4; place++) {
            const u32 nibble = selector >> (4 * place) & 15;
            u64 byte = bytes >> (8 * (nibble & 7)) & 255;
            if (nibble & 8) byte = byte & 128 ? 255 : 0;
            result |= byte << (8 * place);
        }
        return result;
    }
};

// Two registers as one of 64 bits, shifted (PTX ISA, section "shf").
template <bool LEFT, bool WRAP>
struct FunnelShift {
    static constexpr int inputs = 3;
    static u64 apply(const Instruction&, u64 low, u64 high, u64 by) {
        const u32 distance = WRAP ? by & 31 : std::min<u32>(static_cast<u32>(by), 32);
        const u64 both = (low & 0xffffffff) | high << 32;
        return LEFT ? (both << distance) >> 32 : (both >> distance) & 0xffffffff;
    }
};

// Any function of three bits, by its table (PTX ISA, section "lop3").
inline void look_up(const Instruction&, u32 mask, const Sources& from, u64* out) {
    each_lane(mask, [&](int lane) {
        const u32 a = from[0][lane], b = from[1][lane], c = from[2][lane], table = from[3][lane];
        u32 result = 0;
        for (int row = 0; row < 8; row++) {
            if (table >> row & 1) {
                result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
            }
        }
        out[lane] = result;
    });
}

}  // namespace emulated
