// The operations of PTX's arithmetic and comparison instructions, for one number each.
#pragma once

#include "lanewise.h"

namespace emulated {

// Whole numbers wrap around; in C++ only unsigned ones of full width do, so that those are used.
template <class T>
T wrapped(u64 value) {
    return static_cast<T>(value);
}

struct Add {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        return static_cast<T>(a + b);
    }
};

struct Subtract {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        return static_cast<T>(a - b);
    }
};

struct Multiply {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction&, T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            return wrapped<T>(static_cast<u64>(a) * static_cast<u64>(b));
        } else {
            return a * b;
        }
    }
};

// A product and a sum. Of bf16 numbers the product is exact, and the sum is off only where its
// parts are 2^53 apart and a tie hangs on the smaller.
struct MultiplyAdd {
    static constexpr int inputs = 3;
    template <class T>
    static T apply(const Instruction&, T a, T b, T c) {
        if constexpr (std::is_integral_v<T>) {
            return wrapped<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
        } else {
            return std::fma(a, b, c);
        }
    }
};

// The product of two T in twice the width, and what is added to it in that width.
template <class T>
struct MultiplyWide {
    static constexpr int inputs = 3;
    static u64 apply(const Instruction&, u64 a, u64 b, u64 c) {
        using Wide = std::conditional_t<std::is_signed_v<T>, i64, u64>;
        const u64 product = static_cast<u64>(static_cast<Wide>(take<T>(a))) *
                            static_cast<u64>(static_cast<Wide>(take<T>(b)));
        return (product + c) & low_bits(16 * sizeof(T));
    }
};

template <class T>
struct MultiplyHigh {
    static constexpr int inputs = 2;
    static u64 apply(const Instruction&, u64 a, u64 b) {
        using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        const Wide product = static_cast<Wide>(take<T>(a)) * static_cast<Wide>(take<T>(b));
        return static_cast<u64>(product >> (8 * sizeof(T))) & low_bits(8 * sizeof(T));
    }
};

struct Divide {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction& by, T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            if (b == 0) by.refuse("division by zero");
            if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrapped<T>(0 - (u64)a);
        }
        return a / b;
    }
};

struct Remainder {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction& by, T a, T b) {
        if (b == 0) by.refuse("division by zero");
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
        return a % b;
    }
};

// The smaller or the larger. Of floating-point numbers one that is none counts only with `.NaN`,
// and -0 is below +0 (PTX ISA, sections "min" and "max").
template <bool LARGER>
struct Extreme {
    static constexpr int inputs = 2;
    template <class T>
    static T apply(const Instruction& by, T a, T b) {
        if constexpr (!std::is_integral_v<T>) {
            if (a != a || b != b) {
                if (by.propagate_nan) return std::numeric_limits<T>::quiet_NaN();
                return a != a ? b : a;
            }
            if (a == b) return std::signbit(a) == LARGER ? b : a;
        }
        return (a < b) == LARGER ? b : a;
    }
};

template <bool LARGER>
struct ExtremeOfThree {
    static constexpr int inputs = 3;
    static float apply(const Instruction& by, float a, float b, float c) {
        return Extreme<LARGER>::apply(by, Extreme<LARGER>::apply(by, a, b), c);
    }
};

struct Negate {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        return static_cast<T>(0 - a);
    }
};

struct Absolute {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        if constexpr (std::is_integral_v<T>) {
            return a < 0 ? wrapped<T>(0 - static_cast<u64>(a)) : a;
        } else {
            return std::fabs(a);
        }
    }
};

// Signs of floating-point numbers are bits: a NaN keeps its own.
struct FlipSign {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        return a ^ static_cast<T>(1ull << (8 * sizeof(T) - 1));
    }
};

struct DropSign {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        return a & static_cast<T>(low_bits(8 * sizeof(T) - 1));
    }
};

// Approximations of the card (`.approx`) are computed as well as the host can.
struct Exp2 {
    static constexpr int inputs = 1;
    static float apply(const Instruction&, float a) { return std::exp2(a); }
};

struct Log2 {
    static constexpr int inputs = 1;
    static float apply(const Instruction&, float a) { return std::log2(a); }
};

struct SquareRoot {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        return std::sqrt(a);
    }
};

struct InverseSquareRoot {
    static constexpr int inputs = 1;
    static float apply(const Instruction&, float a) {
        return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
    }
};

struct Reciprocal {
    static constexpr int inputs = 1;
    template <class T>
    static T apply(const Instruction&, T a) {
        return 1 / a;
    }
};

// What two numbers are to each other; an instruction accepts a set of them.
enum Outcome : u32 { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

// Of the comparison that stands behind "setp.", by its name (PTX ISA, section "Comparisons").
inline u32 accepted_outcomes(const std::string& comparison) {
    static const std::unordered_map<std::string, u32> names = {
        {"eq", EQUAL},          {"ne", LESS | GREATER},
        {"lt", LESS},           {"le", LESS | EQUAL},
        {"gt", GREATER},        {"ge", GREATER | EQUAL},
        {"lo", LESS},           {"ls", LESS | EQUAL},
        {"hi", GREATER},        {"hs", GREATER | EQUAL},
        {"equ", EQUAL | UNORDERED},        {"neu", LESS | GREATER | UNORDERED},
        {"ltu", LESS | UNORDERED},         {"leu", LESS | EQUAL | UNORDERED},
        {"gtu", GREATER | UNORDERED},      {"geu", GREATER | EQUAL | UNORDERED},
        {"num", LESS | EQUAL | GREATER},   {"nan", UNORDERED},
    };
    const auto found = names.find(comparison);
    return found == names.end() ? 0 : found->second;
}

template <class Format>
void compare(const Instruction& by, u32 mask, const Sources& from, u64* out) {
    const u32 accepted = by.accepted;
    each_lane(mask, [&](int lane) {
        const auto a = Format::read(from[0][lane]), b = Format::read(from[1][lane]);
        const u32 outcome = a < b ? LESS : a == b ? EQUAL : a > b ? GREATER : UNORDERED;
        out[lane] = (accepted & outcome) != 0;
    });
}

}  // namespace emulated
