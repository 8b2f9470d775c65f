// Arithmetic of one lane at a time: adding, multiplying, comparing, shifting, and the table of it.
//
// An operation is a struct with `inputs` and `apply`, written for numbers. A format says how the
// number lies in a register. `spread` joins one of each into a loop over the lanes, so that the
// loop holds neither a switch nor a call.
#pragma once

#include <type_traits>

#include "instruction.h"

namespace emulated {

// --- formats -----------------------------------------------------------------------------------

template <class T>
struct Whole {
    using Value = T;
    static constexpr int bits = 8 * sizeof(T);
    static T read(u64 held) { return take<T>(held); }
    static u64 write(T value) { return give(value); }
};

struct Truth {
    using Value = bool;
    static bool read(u64 held) { return held & 1; }
    static u64 write(bool value) { return value; }
};

struct Single {
    using Value = float;
    static constexpr int bits = 32;
    static float read(u64 held) { return take<float>(held); }
    static u64 write(float value) { return value == value ? give(value) : CANONICAL_NAN; }
};

struct FlushedSingle {
    using Value = float;
    static float read(u64 held) { return flushed(take<float>(held)); }
    static u64 write(float value) { return Single::write(flushed(value)); }
};

struct Double {
    using Value = double;
    static double read(u64 held) { return take<double>(held); }
    static u64 write(double value) { return give(value); }
};

// Computed as doubles and rounded once: sums and products of two are exact before that, and so is
// the product in an fma.
struct Brain {
    using Value = double;
    static constexpr int bits = 16;
    static double read(u64 held) { return from_bf16(held); }
    static u64 write(double value) { return to_bf16(value); }
};

struct Half {
    using Value = double;
    static constexpr int bits = 16;
    static double read(u64 held) { return from_f16(held); }
    static u64 write(double value) { return to_f16(value); }
};

// Two numbers side by side in one register.
template <class Element>
struct Pair {};

// --- the loop ----------------------------------------------------------------------------------

template <class Operation, class Format>
struct Computed {
    static u64 of(const Instruction& by, u64 a, u64 b, u64 c) {
        using F = Format;
        if constexpr (Operation::inputs == 1) {
            return F::write(Operation::apply(by, F::read(a)));
        } else if constexpr (Operation::inputs == 2) {
            return F::write(Operation::apply(by, F::read(a), F::read(b)));
        } else {
            return F::write(Operation::apply(by, F::read(a), F::read(b), F::read(c)));
        }
    }
};

template <class Operation, class Element>
struct Computed<Operation, Pair<Element>> {
    static u64 of(const Instruction& by, u64 a, u64 b, u64 c) {
        constexpr int bits = Element::bits;
        const u64 low = Computed<Operation, Element>::of(by, a, b, c);
        const u64 high = Computed<Operation, Element>::of(by, a >> bits, b >> bits, c >> bits);
        return (low & low_bits(bits)) | high << bits;
    }
};

template <class Operation, class Format>
void spread(const Instruction& by, u32 mask, const Sources& from, u64* out) {
    each_lane(mask, [&](int lane) {
        const u64 b = Operation::inputs > 1 ? from[1][lane] : 0;
        const u64 c = Operation::inputs > 2 ? from[2][lane] : 0;
        out[lane] = Computed<Operation, Format>::of(by, from[0][lane], b, c);
    });
}

// --- which format a type has; nullptr where the operation does not take it -----------------------

// Operations for which the sign of a whole number does not matter.
template <class Operation>
Lanewise on_bits(Type type) {
    if (type == Type::S16x2 || type == Type::U16x2) return spread<Operation, Pair<Whole<u16>>>;
    if (type == Type::Pred || type == Type::None) return nullptr;
    switch (bytes_of(type)) {
        case 2: return spread<Operation, Whole<u16>>;
        case 4: return spread<Operation, Whole<u32>>;
        case 8: return spread<Operation, Whole<u64>>;
        default: return nullptr;
    }
}

template <class Operation>
Lanewise on_integers(Type type) {
    switch (type) {
        case Type::S16: return spread<Operation, Whole<std::int16_t>>;
        case Type::S32: return spread<Operation, Whole<std::int32_t>>;
        case Type::S64: return spread<Operation, Whole<i64>>;
        case Type::S16x2: return spread<Operation, Pair<Whole<std::int16_t>>>;
        default: return is_float(type) ? nullptr : on_bits<Operation>(type);
    }
}

template <class Operation>
Lanewise on_floats(Type type, bool flush) {
    switch (type) {
        case Type::F32: return flush ? spread<Operation, FlushedSingle> : spread<Operation, Single>;
        case Type::F64: return spread<Operation, Double>;
        case Type::F16: return spread<Operation, Half>;
        case Type::BF16: return spread<Operation, Brain>;
        case Type::F32x2: return spread<Operation, Pair<Single>>;
        case Type::F16x2: return spread<Operation, Pair<Half>>;
        case Type::BF16x2: return spread<Operation, Pair<Brain>>;
        default: return nullptr;
    }
}

inline bool holds_floats(Type type) {
    return is_float(type) || type == Type::F32x2 || type == Type::F16x2 || type == Type::BF16x2;
}

}  // namespace emulated
