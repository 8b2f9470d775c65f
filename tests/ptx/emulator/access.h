// Loads, stores, atomics and copies from global to shared memory.
#pragma once

#include "arithmetic.h"
#include "bits.h"
#include "machine.h"

namespace emulated {

inline void count(Warp& warp, const Instruction& by, Space space, u32 mask,
                  const Addresses& addresses, int bytes) {
    Counters* counters = warp.machine.counters(by);
    if (!counters) return;
    if (space == Space::Global) {
        count_global(*counters, mask, addresses, bytes);
    } else {
        count_shared(*counters, mask, addresses, bytes);
    }
}

// Where a lane loads from or stores to, once it is seen that it may. `stored` is nullptr for loads.
inline unsigned char* reach(Warp& warp, const Instruction& by, u64 address, int bytes,
                            const void* stored) {
    Machine& machine = warp.machine;
    if (by.space == Space::Shared) {
        unsigned char* place = machine.shared_at(by, address, bytes);
        machine.races.shared(by, warp.index, static_cast<u32>(address), bytes, stored, place);
        return place;
    }
    unsigned char* place = machine.global(by, address, bytes);
    if (!by.strong) machine.races.global(by, warp.index, address, bytes, stored);
    return place;
}

inline void load(Warp& warp, const Instruction& by, u32 mask) {
    const int size = bytes_of(by.type), total = size * by.count;
    const bool extend = is_signed(by.type);
    const Addresses addresses = warp.addresses(by.one(1), mask);
    count(warp, by, by.space, mask, addresses, total);
    std::array<u64*, 8> out{};
    for (int i = 0; i < by.count; i++) out[i] = warp.write(by.operand(0).at(i));
    each_lane(mask, [&](int lane) {
        const unsigned char* from = reach(warp, by, addresses[lane], total, nullptr);
        for (int i = 0; i < by.count; i++) {
            u64 value = 0;
            std::memcpy(&value, from + i * size, size);
            out[i][lane] = extend ? static_cast<u64>(sign_extended(value, 8 * size)) : value;
        }
    });
}

inline void store(Warp& warp, const Instruction& by, u32 mask) {
    const int size = bytes_of(by.type), total = size * by.count;
    const Addresses addresses = warp.addresses(by.one(0), mask);
    count(warp, by, by.space, mask, addresses, total);
    std::array<const u64*, 8> in{};
    std::array<Registers, 8> scratch;
    for (int i = 0; i < by.count; i++) in[i] = warp.read(by.operand(1).at(i), scratch[i]);
    each_lane(mask, [&](int lane) {
        unsigned char values[64];
        for (int i = 0; i < by.count; i++) std::memcpy(values + i * size, &in[i][lane], size);
        std::memcpy(reach(warp, by, addresses[lane], total, values), values, total);
    });
}

// Asks for what lies there, which must be within a tensor; nothing is read.
inline void prefetch(Warp& warp, const Instruction& by, u32 mask) {
    const Addresses addresses = warp.addresses(by.one(0), mask);
    each_lane(mask, [&](int lane) { warp.machine.global(by, addresses[lane], 1); });
}

inline void wait_for_inputs(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_all_living(by, mask);
    warp.inputs_there = true;
}

inline void load_parameter(Warp& warp, const Instruction& by, u32 mask) {
    const Operand& parameter = by.one(1);
    if (parameter.offset || by.count != 1) by.refuse("only whole parameters can be loaded");
    const int bits = bits_of(by.type);
    u64 value = warp.machine.request.arguments[parameter.immediate] & low_bits(bits);
    if (is_signed(by.type)) value = static_cast<u64>(sign_extended(value, bits));
    u64* out = warp.write(by.one(0));
    each_lane(mask, [&](int lane) { out[lane] = value; });
}

template <class T>
u64 combined(const Instruction& by, Combination what, u64 held, u64 with, u64 swap) {
    const T a = take<T>(held), b = take<T>(with);
    switch (what) {
        case Combination::Add: return give(Add::apply<T>(by, a, b));
        case Combination::Min: return give(std::min(a, b));
        case Combination::Max: return give(std::max(a, b));
        case Combination::Exchange: return give(b);
        case Combination::CompareAndSwap: return a == b ? swap : held;
        default: break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (what == Combination::And) return give(static_cast<T>(a & b));
        if (what == Combination::Or) return give(static_cast<T>(a | b));
        return give(static_cast<T>(a ^ b));
    }
    by.refuse("no such atomic on floating-point numbers");
}

inline u64 combined(const Instruction& by, Combination what, u64 held, u64 with, u64 swap) {
    switch (by.type) {
        case Type::F32: return combined<float>(by, what, held, with, swap);
        case Type::S32: return combined<std::int32_t>(by, what, held, with, swap);
        case Type::U32: case Type::B32: return combined<u32>(by, what, held, with, swap);
        case Type::S64: return combined<i64>(by, what, held, with, swap);
        case Type::U64: case Type::B64: return combined<u64>(by, what, held, with, swap);
        default: by.refuse("an atomic on a type that is not known to the emulator");
    }
}

// `atom`, which gives back what was there, and `red`, which does not.
inline void atomic(Warp& warp, const Instruction& by, u32 mask) {
    Machine& machine = warp.machine;
    const bool returns = by.mnemonic[0] == "atom";
    const std::size_t at = returns ? 1 : 0;
    const int bytes = bytes_of(by.type);
    const Combination what = by.combination;
    const Addresses addresses = warp.addresses(by.one(at), mask);
    Registers scratch, spare;
    const u64* with = warp.read(by.one(at + 1), scratch);
    const u64* swap = what == Combination::CompareAndSwap ? warp.read(by.one(at + 2), spare) : with;
    u64* out = returns ? warp.write(by.one(0)) : nullptr;
    const bool is_shared = by.space == Space::Shared;
    each_lane(mask, [&](int lane) {
        unsigned char* place = is_shared ? machine.shared_at(by, addresses[lane], bytes)
                                         : machine.global(by, addresses[lane], bytes);
        u64 held = 0;
        std::memcpy(&held, place, bytes);
        const u64 result = combined(by, what, held, with[lane], swap[lane]);
        std::memcpy(place, &result, bytes);
        if (out) out[lane] = held;
        if (!is_shared) machine.races.atomic(addresses[lane], by.acquires, by.releases);
    });
}

// A copy arrives: what it reads and writes counts as done by its warp now.
inline void arrive(Warp& warp, const Copy& copy) {
    Machine& machine = warp.machine;
    unsigned char* to = machine.shared_at(*copy.by, copy.to, copy.bytes);
    unsigned char values[16] = {};
    if (copy.taken == copy.bytes) {
        machine.global(*copy.by, copy.from, copy.bytes);
    } else if (copy.taken) {
        machine.global(*copy.by, copy.from, 1);
        machine.global(*copy.by, copy.from + copy.taken - 1, 1);
    }
    if (copy.taken) {
        machine.races.global(*copy.by, warp.index, copy.from, copy.taken, nullptr);
        std::memcpy(values, reinterpret_cast<const void*>(copy.from), copy.taken);
    }
    machine.races.shared(*copy.by, warp.index, copy.to, copy.bytes, values, to);
    std::memcpy(to, values, copy.bytes);
}

inline void copy_async(Warp& warp, const Instruction& by, u32 mask) {
    const Addresses to = warp.addresses(by.one(0), mask), from = warp.addresses(by.one(1), mask);
    const int bytes = static_cast<int>(warp.uniform(by.one(2)));
    if (bytes != 4 && bytes != 8 && bytes != 16) by.refuse("a copy of 4, 8 or 16 bytes only");
    Registers scratch;
    const u64* taken = warp.read(by.one(by.operands.size() > 3 ? 3 : 2), scratch);
    u32 reading = 0;
    each_lane(mask, [&](int lane) {
        const Copy copy{&by, bytes, static_cast<int>(taken[lane]), from[lane],
                        static_cast<u32>(to[lane])};
        if (copy.taken < 0 || copy.taken > bytes) by.refuse("a copy of more bytes than it has");
        if (copy.taken) reading |= 1u << lane;
        if (warp.machine.copies_late) {
            warp.open.push_back(copy);
        } else {
            arrive(warp, copy);
        }
    });
    count(warp, by, Space::Shared, mask, to, bytes);
    count(warp, by, Space::Global, reading, from, bytes);
}

inline void commit_copies(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_all_living(by, mask);
    warp.groups.emplace_back(std::move(warp.open));
    warp.open.clear();
}

inline void wait_for_copies(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_all_living(by, mask);
    if (by.has("wait_all")) commit_copies(warp, by, mask);
    const u64 left = by.has("wait_all") ? 0 : warp.uniform(by.one(0));
    const std::size_t done = warp.groups.size() > left ? warp.groups.size() - left : 0;
    for (std::size_t i = 0; i < done; i++) {
        for (const Copy& copy : warp.groups[i]) arrive(warp, copy);
    }
    warp.groups.erase(warp.groups.begin(), warp.groups.begin() + static_cast<long>(done));
}

}  // namespace emulated
