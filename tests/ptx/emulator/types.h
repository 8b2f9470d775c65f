// The types that PTX puts at the end of a mnemonic (PTX ISA, section "Fundamental Types").
#pragma once

#include <string>
#include <unordered_map>

namespace emulated {

enum class Type {
    None, Pred,
    B8, B16, B32, B64,
    U8, U16, U32, U64,
    S8, S16, S32, S64,
    F16, BF16, F32, F64,
    F16x2, BF16x2, S16x2, U16x2, F32x2,
};

// None for a suffix that is no type.
inline Type type_named(const std::string& name) {
    static const std::unordered_map<std::string, Type> names = {
        {"pred", Type::Pred},     {"b8", Type::B8},       {"b16", Type::B16},
        {"b32", Type::B32},       {"b64", Type::B64},     {"u8", Type::U8},
        {"u16", Type::U16},       {"u32", Type::U32},     {"u64", Type::U64},
        {"s8", Type::S8},         {"s16", Type::S16},     {"s32", Type::S32},
        {"s64", Type::S64},       {"f16", Type::F16},     {"bf16", Type::BF16},
        {"f32", Type::F32},       {"f64", Type::F64},     {"f16x2", Type::F16x2},
        {"bf16x2", Type::BF16x2}, {"s16x2", Type::S16x2}, {"u16x2", Type::U16x2},
        {"f32x2", Type::F32x2},
    };
    const auto found = names.find(name);
    return found == names.end() ? Type::None : found->second;
}

inline int bytes_of(Type type) {
    switch (type) {
        case Type::None: case Type::Pred: case Type::B8: case Type::U8: case Type::S8:
            return 1;
        case Type::B16: case Type::U16: case Type::S16: case Type::F16: case Type::BF16:
            return 2;
        case Type::B64: case Type::U64: case Type::S64: case Type::F64: case Type::F32x2:
            return 8;
        default:
            return 4;
    }
}

inline int bits_of(Type type) {
    return type == Type::Pred ? 1 : 8 * bytes_of(type);
}

inline bool is_signed(Type type) {
    return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}

inline bool is_float(Type type) {
    return type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64;
}

}  // namespace emulated
