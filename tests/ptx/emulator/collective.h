// Instructions in which the lanes of a warp hear of each other, and moves of several registers.
#pragma once

#include "machine.h"

namespace emulated {

inline void run_lanewise(Warp& warp, const Instruction& by, u32 mask) {
    static const Registers zeros{};
    std::array<Registers, 4> scratch;
    Sources from{zeros.data(), zeros.data(), zeros.data(), zeros.data()};
    for (std::size_t i = 1; i < by.operands.size(); i++) {
        from[i - 1] = warp.read(by.one(i), scratch[i - 1]);
    }
    by.lanewise(by, mask, from, warp.write(by.one(0)));
}

// setp: the comparison, joined with a further predicate; a second result is that of its opposite.
inline void set_predicate(Warp& warp, const Instruction& by, u32 mask) {
    std::array<Registers, 3> scratch;
    Registers found;
    const Sources from{warp.read(by.one(1), scratch[0]), warp.read(by.one(2), scratch[1]),
                       nullptr, nullptr};
    by.lanewise(by, mask, from, found.data());
    static const Registers zeros{};
    const bool joined = by.combine != BooleanOperation::None;
    const u64* other = joined ? warp.read(by.one(3), scratch[2]) : zeros.data();
    const auto join = [&](bool result, bool with) {
        switch (by.combine) {
            case BooleanOperation::And: return result && with;
            case BooleanOperation::Or: return result || with;
            case BooleanOperation::Xor: return result != with;
            default: return result;
        }
    };
    u64* out = warp.write(by.one(0));
    u64* opposite = by.operand(0).size() > 1 ? warp.write(by.operand(0)[1]) : nullptr;
    each_lane(mask, [&](int lane) {
        const bool with = other[lane] & 1;
        out[lane] = join(found[lane], with);
        if (opposite) opposite[lane] = join(!found[lane], with);
    });
}

// mov: one register, or several that together are as wide as one.
inline void move(Warp& warp, const Instruction& by, u32 mask) {
    const auto& to = by.operand(0);
    const auto& from = by.operand(1);
    if (to.size() > 1 && from.size() > 1) by.refuse("a move of several registers to several");
    const int bits = bits_of(by.type);
    const int taken = bits / static_cast<int>(from.size());
    const int given = bits / static_cast<int>(to.size());
    Registers value{}, scratch;
    for (std::size_t i = 0; i < from.size(); i++) {
        const u64* in = warp.read(from[i], scratch);
        each_lane(mask, [&](int lane) {
            value[lane] |= (in[lane] & low_bits(taken)) << taken * i;
        });
    }
    for (std::size_t i = 0; i < to.size(); i++) {
        u64* out = warp.write(to[i]);
        each_lane(mask, [&](int lane) { out[lane] = value[lane] >> given * i & low_bits(given); });
    }
}

// Which lane a lane reads from, and whether that is within its segment (PTX ISA, section "shfl").
inline std::pair<int, bool> shuffle_source(const Instruction& by, int lane, u32 b, u32 c) {
    const int distance = static_cast<int>(b & 31);
    const int segment = static_cast<int>(c >> 8 & 31), clamp = static_cast<int>(c & 31);
    const int lowest = lane & segment, highest = lowest | (clamp & ~segment);
    int source;
    bool within;
    switch (by.shuffle) {
        case Shuffle::Up:
            source = lane - distance;
            within = source >= highest;
            return {within ? source : lane, within};
        case Shuffle::Down:
            source = lane + distance;
            break;
        case Shuffle::Butterfly:
            source = lane ^ distance;
            break;
        default:
            source = lowest | (distance & ~segment);
    }
    within = source <= highest;
    return {within ? source : lane, within};
}

// The lanes that the instruction names must all be here, those aside that have ended.
inline void need_members(Warp& warp, const Instruction& by, const Operand& members, u32 mask) {
    const u32 named = static_cast<u32>(warp.uniform(members));
    if (named & warp.alive & ~mask) by.refuse("lanes it names are elsewhere");
}

inline void shuffle(Warp& warp, const Instruction& by, u32 mask) {
    need_members(warp, by, by.one(4), mask);
    std::array<Registers, 3> scratch;
    Registers found;
    const u64* value = warp.read(by.one(1), scratch[0]);
    const u64* b = warp.read(by.one(2), scratch[1]);
    const u64* c = warp.read(by.one(3), scratch[2]);
    u32 within = 0;
    each_lane(mask, [&](int lane) {
        const auto [source, inside] =
            shuffle_source(by, lane, static_cast<u32>(b[lane]), static_cast<u32>(c[lane]));
        if (!(mask >> source & 1)) by.refuse("a shuffle from a lane that takes no part");
        found[lane] = value[source];
        if (inside) within |= 1u << lane;
    });
    u64* out = warp.write(by.one(0));
    u64* inside = by.operand(0).size() > 1 ? warp.write(by.operand(0)[1]) : nullptr;
    each_lane(mask, [&](int lane) {
        out[lane] = found[lane];
        if (inside) inside[lane] = within >> lane & 1;
    });
}

inline void reduce(Warp& warp, const Instruction& by, u32 mask) {
    need_members(warp, by, by.one(2), mask);
    Registers scratch;
    const u64* value = warp.read(by.one(1), scratch);
    const auto number = [&](int lane) {
        return by.type == Type::S32 ? sign_extended(value[lane], 32)
                                    : static_cast<i64>(value[lane] & 0xffffffff);
    };
    i64 result = number(__builtin_ctz(mask));
    each_lane(mask & (mask - 1), [&](int lane) {
        const i64 next = number(lane);
        switch (by.combination) {
            case Combination::Add: result += next; break;
            case Combination::Min: result = std::min(result, next); break;
            case Combination::Max: result = std::max(result, next); break;
            case Combination::And: result &= next; break;
            case Combination::Or: result |= next; break;
            case Combination::Xor: result ^= next; break;
            default: by.refuse("a reduction that is not known to the emulator");
        }
    });
    u64* out = warp.write(by.one(0));
    each_lane(mask, [&](int lane) { out[lane] = static_cast<u32>(result); });
}

inline void vote(Warp& warp, const Instruction& by, u32 mask) {
    need_members(warp, by, by.one(2), mask);
    Registers scratch;
    const u64* value = warp.read(by.one(1), scratch);
    u32 yes = 0;
    each_lane(mask, [&](int lane) { yes |= static_cast<u32>(value[lane] & 1) << lane; });
    u64 result;
    if (by.has("ballot")) result = yes;
    else if (by.has("any")) result = yes != 0;
    else if (by.has("all")) result = yes == mask;
    else by.refuse("a vote that is not known to the emulator");
    u64* out = warp.write(by.one(0));
    each_lane(mask, [&](int lane) { out[lane] = result; });
}

inline void nothing(Warp&, const Instruction&, u32) {}

}  // namespace emulated
