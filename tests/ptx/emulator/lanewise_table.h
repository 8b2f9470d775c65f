// Which loop over the lanes a mnemonic means. A further instruction is a line here.
#pragma once

#include <unordered_set>

#include "arithmetic.h"
#include "bits.h"
#include "convert.h"

namespace emulated {

// Sums and products: of whole numbers whatever their sign, or of floating-point ones.
template <class Operation>
Lanewise on_numbers(const Instruction& by) {
    return holds_floats(by.type) ? on_floats<Operation>(by.type, by.has("ftz"))
                                 : on_bits<Operation>(by.type);
}

template <class Operation>
Lanewise on_ordered(const Instruction& by) {
    return holds_floats(by.type) ? on_floats<Operation>(by.type, by.has("ftz"))
                                 : on_integers<Operation>(by.type);
}

template <class Operation>
Lanewise on_logic(const Instruction& by) {
    return by.type == Type::Pred ? spread<Operation, Truth> : on_bits<Operation>(by.type);
}

// Operations that take registers as they are and are told the width and sign by their template.
template <template <class> class Operation>
Lanewise on_held_integers(const Instruction& by) {
    switch (by.type) {
        case Type::B16: case Type::U16: return spread<Operation<u16>, Whole<u64>>;
        case Type::B32: case Type::U32: return spread<Operation<u32>, Whole<u64>>;
        case Type::B64: case Type::U64: return spread<Operation<u64>, Whole<u64>>;
        case Type::S16: return spread<Operation<std::int16_t>, Whole<u64>>;
        case Type::S32: return spread<Operation<std::int32_t>, Whole<u64>>;
        case Type::S64: return spread<Operation<i64>, Whole<u64>>;
        default: return nullptr;
    }
}

template <template <class> class Operation>
Lanewise on_held(const Instruction& by) {
    if (by.type == Type::F32) return spread<Operation<u32>, Whole<u64>>;
    if (by.type == Type::F64) return spread<Operation<u64>, Whole<u64>>;
    return on_held_integers<Operation>(by);
}

template <template <class> class Operation>
Lanewise on_32_or_64_bits(const Instruction& by) {
    if (by.type == Type::B32) return spread<Operation<u32>, Whole<u64>>;
    return by.type == Type::B64 ? spread<Operation<u64>, Whole<u64>> : nullptr;
}

// A change of sign is one of bits, but for those that make subnormal numbers zeros.
template <class OnFlushed, class OnSign, class OnInteger>
Lanewise on_sign(const Instruction& by) {
    if (by.has("ftz")) return on_floats<OnFlushed>(by.type, true);
    switch (by.type) {
        case Type::F16: case Type::BF16: return spread<OnSign, Whole<u16>>;
        case Type::F16x2: case Type::BF16x2: return spread<OnSign, Pair<Whole<u16>>>;
        case Type::F32: return spread<OnSign, Whole<u32>>;
        case Type::F64: return spread<OnSign, Whole<u64>>;
        default: return on_integers<OnInteger>(by.type);
    }
}

template <class Operation>
Lanewise on_single(const Instruction& by) {
    return by.type == Type::F32 ? on_floats<Operation>(by.type, by.has("ftz")) : nullptr;
}

inline Lanewise comparison(const Instruction& by) {
    switch (by.type) {
        case Type::B16: case Type::U16: return compare<Whole<u16>>;
        case Type::B32: case Type::U32: return compare<Whole<u32>>;
        case Type::B64: case Type::U64: return compare<Whole<u64>>;
        case Type::S16: return compare<Whole<std::int16_t>>;
        case Type::S32: return compare<Whole<std::int32_t>>;
        case Type::S64: return compare<Whole<i64>>;
        case Type::F16: return compare<Half>;
        case Type::BF16: return compare<Brain>;
        case Type::F32: return by.has("ftz") ? compare<FlushedSingle> : compare<Single>;
        case Type::F64: return compare<Double>;
        default: return nullptr;
    }
}

inline Lanewise product(const Instruction& by) {
    if (by.has("wide")) return on_held_integers<MultiplyWide>(by);
    if (by.has("hi")) return by.mnemonic[0] == "mul" ? on_held_integers<MultiplyHigh>(by) : nullptr;
    return by.mnemonic[0] == "mul" ? on_numbers<Multiply>(by) : on_numbers<MultiplyAdd>(by);
}

// Of two numbers, or of three float32 ones (PTX ISA 8.8, sm_100).
template <bool LARGER>
Lanewise extreme(const Instruction& by) {
    return by.operands.size() == 4 ? on_single<ExtremeOfThree<LARGER>>(by)
                                   : on_ordered<Extreme<LARGER>>(by);
}

inline Lanewise remainder_of(const Instruction& by) {
    return holds_floats(by.type) ? nullptr : on_integers<Remainder>(by.type);
}

inline Lanewise funnel(const Instruction& by) {
    if (by.has("l")) return by.has("wrap") ? spread<FunnelShift<true, true>, Whole<u64>>
                                           : spread<FunnelShift<true, false>, Whole<u64>>;
    return by.has("wrap") ? spread<FunnelShift<false, true>, Whole<u64>>
                          : spread<FunnelShift<false, false>, Whole<u64>>;
}

template <Lanewise LOOP, Type FIRST, Type SECOND>
Lanewise only(const Instruction& by) {
    return by.type == FIRST || by.type == SECOND ? LOOP : nullptr;
}

// Suffixes that say how an operation is done, where this is how it is done here.
inline bool suffixes_are_known(const Instruction& by) {
    static const std::unordered_set<std::string> known = {
        "rn", "rni", "rz", "rzi", "rm", "rmi", "rp", "rpi", "ftz", "approx", "full", "lo", "hi",
        "wide", "NaN", "l", "r", "wrap", "clamp", "sat", "satfinite", "and", "or", "xor",
    };
    const bool arithmetic = by.mnemonic[0] != "cvt";
    for (std::size_t i = by.mnemonic[0] == "setp" ? 2 : 1; i < by.mnemonic.size(); i++) {
        const std::string& suffix = by.mnemonic[i];
        if (type_named(suffix) == Type::None && !known.count(suffix)) return false;
        const bool directed = suffix[0] == 'r' && suffix.size() > 1 && suffix != "rn";
        if (arithmetic && (directed || by.saturate)) return false;
    }
    return true;
}

// nullptr for what is no such instruction, or not known.
inline Lanewise lanewise_of(const Instruction& by) {
    using Choose = Lanewise (*)(const Instruction&);
    struct Entry {
        Choose choose;
        std::size_t least, most;  // operands, the result among them
    };
    static const std::unordered_map<std::string, Entry> table = {
        {"add", {on_numbers<Add>, 3, 3}},
        {"sub", {on_numbers<Subtract>, 3, 3}},
        {"mul", {product, 3, 3}},
        {"mad", {product, 4, 4}},
        {"fma", {on_numbers<MultiplyAdd>, 4, 4}},
        {"div", {on_ordered<Divide>, 3, 3}},
        {"rem", {remainder_of, 3, 3}},
        {"min", {extreme<false>, 3, 4}},
        {"max", {extreme<true>, 3, 4}},
        {"neg", {on_sign<Negate, FlipSign, Negate>, 2, 2}},
        {"abs", {on_sign<Absolute, DropSign, Absolute>, 2, 2}},
        {"ex2", {on_single<Exp2>, 2, 2}},
        {"lg2", {on_single<Log2>, 2, 2}},
        {"sqrt", {on_single<SquareRoot>, 2, 2}},
        {"rsqrt", {on_single<InverseSquareRoot>, 2, 2}},
        {"rcp", {on_single<Reciprocal>, 2, 2}},
        {"and", {on_logic<And>, 3, 3}},
        {"or", {on_logic<Or>, 3, 3}},
        {"xor", {on_logic<Xor>, 3, 3}},
        {"not", {on_logic<Not>, 2, 2}},
        {"shl", {on_held_integers<ShiftLeft>, 3, 3}},
        {"shr", {on_held_integers<ShiftRight>, 3, 3}},
        {"selp", {on_held<Select>, 4, 4}},
        {"setp", {comparison, 3, 4}},
        {"cvt", {conversion, 2, 3}},
        {"bfe", {on_held_integers<ExtractField>, 4, 4}},
        {"bfi", {only<insert_field, Type::B32, Type::B64>, 5, 5}},
        {"popc", {on_32_or_64_bits<CountOnes>, 2, 2}},
        {"clz", {on_32_or_64_bits<CountLeadingZeros>, 2, 2}},
        {"brev", {on_32_or_64_bits<ReverseBits>, 2, 2}},
        {"prmt", {only<spread<PermuteBytes, Whole<u64>>, Type::B32, Type::B32>, 4, 4}},
        {"shf", {funnel, 4, 4}},
        {"lop3", {only<look_up, Type::B32, Type::B32>, 5, 5}},
    };
    const auto found = table.find(by.mnemonic[0]);
    if (found == table.end() || !suffixes_are_known(by)) return nullptr;
    const auto& [choose, least, most] = found->second;
    const std::size_t count = by.operands.size();
    return least <= count && count <= most ? choose(by) : nullptr;
}

}  // namespace emulated
