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
    static const std::unordered_map<std::string, Choose> table = {
        {"add", on_numbers<Add>},
        {"sub", on_numbers<Subtract>},
        {"mul", product},
        {"mad", product},
        {"fma", on_numbers<MultiplyAdd>},
        {"div", on_ordered<Divide>},
        {"rem", [](const Instruction& one) {
             return holds_floats(one.type) ? nullptr : on_integers<Remainder>(one.type);
         }},
        {"min", on_ordered<Extreme<false>>},
        {"max", on_ordered<Extreme<true>>},
        {"neg", on_sign<Negate, FlipSign, Negate>},
        {"abs", on_sign<Absolute, DropSign, Absolute>},
        {"ex2", on_single<Exp2>},
        {"lg2", on_single<Log2>},
        {"sqrt", on_single<SquareRoot>},
        {"rsqrt", on_single<InverseSquareRoot>},
        {"rcp", on_single<Reciprocal>},
        {"and", on_logic<And>},
        {"or", on_logic<Or>},
        {"xor", on_logic<Xor>},
        {"not", on_logic<Not>},
        {"shl", on_held_integers<ShiftLeft>},
        {"shr", on_held_integers<ShiftRight>},
        {"selp", on_held<Select>},
        {"setp", comparison},
        {"cvt", conversion},
        {"bfe", on_held_integers<ExtractField>},
        {"bfi", only<insert_field, Type::B32, Type::B64>},
        {"popc", on_32_or_64_bits<CountOnes>},
        {"clz", on_32_or_64_bits<CountLeadingZeros>},
        {"brev", on_32_or_64_bits<ReverseBits>},
        {"prmt", only<spread<PermuteBytes, Whole<u64>>, Type::B32, Type::B32>},
        {"shf", funnel},
        {"lop3", only<look_up, Type::B32, Type::B32>},
    };
    const auto found = table.find(by.mnemonic[0]);
    return found == table.end() || !suffixes_are_known(by) ? nullptr : found->second(by);
}

}  // namespace emulated
