// The state of a running grid: the program that runs now, its warps, registers and shared memory.
#pragma once

#include <cstdio>
#include <random>

#include "figures.h"
#include "races.h"

namespace emulated {

// What a launch asks for. The layout is known to the Python side.
struct Request {
    int grid[3];
    int warps;
    int shared;  // bytes
    u32 seed;
    const u64* arguments;
    const u64* allocations;  // begin and end of each, in ascending order
    int allocation_count;
    int finds_races;
    Counters* counters;  // one for each instruction, or nullptr
};

struct Copy {  // cp.async that has been started
    const Instruction* by;
    int bytes, taken;  // what is not taken of the bytes is filled with zeros
    u64 from;
    u32 to;
};

using Registers = std::array<u64, LANES>;

class Machine;

class Warp {
public:
    Warp(Machine& machine, int index);

    // The 32 lanes of an operand; those that lie in no register are put into `scratch`.
    const u64* read(const Operand& operand, Registers& scratch) const;
    u64* write(const Operand& operand);
    u64 uniform(const Operand& operand) const { return read(operand, spare_)[first()]; }
    Addresses addresses(const Operand& operand, u32 mask) const;

    // Lanes that have not ended must all be here.
    void need_all_living(const Instruction& by, u32 mask) const {
        if (mask != alive) by.refuse("not reached by the whole warp");
    }
    void need_whole(const Instruction& by, u32 mask) const {
        if (mask != ALL_LANES) by.refuse("not reached by all 32 lanes of the warp");
    }

    Machine& machine;
    const int index;
    u32 alive = ALL_LANES;
    bool waiting = false;  // at a barrier
    bool inputs_there;     // what it depends on is done
    std::array<int, LANES> next{};  // instruction of each lane
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;

private:
    int first() const { return alive ? __builtin_ctz(alive) : 0; }
    mutable Registers spare_{};
};

class Machine {
public:
    Machine(const Kernel& kernel, const Request& request)
        : kernel(kernel), request(request),
          shared(static_cast<std::size_t>(request.shared)), random(request.seed),
          races(request.finds_races, request.grid[0] * request.grid[1] * request.grid[2],
                shared.size(), complaints) {}

    // A place in global memory that lanes may touch.
    unsigned char* global(const Instruction& by, u64 address, int bytes) {
        if (address % bytes) by.refuse("misaligned address " + hex(address) + of(bytes));
        if (address < low_ || address + bytes > high_) find_allocation(by, address, bytes);
        return reinterpret_cast<unsigned char*>(address);
    }

    unsigned char* shared_at(const Instruction& by, u64 address, int bytes) {
        const u32 place = static_cast<u32>(address);
        if (place % bytes) by.refuse("misaligned shared address " + hex(place) + of(bytes));
        if (place + static_cast<u64>(bytes) > shared.size()) {
            by.refuse("beyond the end of shared memory: " + hex(place) + of(bytes));
        }
        return shared.data() + place;
    }

    Counters* counters(const Instruction& of_what) {
        return request.counters ? request.counters + (&of_what - kernel.code.data()) : nullptr;
    }

    u64* lanes_of(int reg, int warp) {
        return registers.data() + (static_cast<std::size_t>(reg) * request.warps + warp) * LANES;
    }

    const Kernel& kernel;
    const Request& request;
    std::vector<unsigned char> shared;
    std::vector<u64> registers;
    std::mt19937 random;
    Complaints complaints;
    Races races;
    std::array<int, 3> place{};  // of the present program in the grid
    bool copies_late = false;    // its cp.async arrive when they are waited for, not at once
    i64 executed = 0;

private:
    static std::string hex(u64 value) {
        char text[24];
        std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
        return text;
    }

    static std::string of(int bytes) { return " of " + std::to_string(bytes) + " bytes"; }

    void find_allocation(const Instruction& by, u64 address, int bytes) {
        for (int i = 0; i < request.allocation_count; i++) {
            const u64 begin = request.allocations[2 * i], end = request.allocations[2 * i + 1];
            if (begin <= address && address + bytes <= end) {
                low_ = begin;
                high_ = end;
                return;
            }
        }
        by.refuse("outside of every tensor: " + hex(address) + of(bytes));
    }

    u64 low_ = 0, high_ = 0;  // the allocation that was touched last
};

inline Warp::Warp(Machine& machine, int index)
    : machine(machine), index(index), inputs_there(!machine.kernel.depends) {}

inline const u64* Warp::read(const Operand& operand, Registers& scratch) const {
    switch (operand.kind) {
        case Operand::Kind::Register:
            return machine.lanes_of(operand.index, index);
        case Operand::Kind::Immediate:
            scratch.fill(operand.immediate);
            return scratch.data();
        case Operand::Kind::Special:
            break;
        default:
            throw Refusal("an operand that cannot be read");
    }
    const auto& grid = machine.request.grid;
    for (int lane = 0; lane < LANES; lane++) {
        const auto value = [&]() -> int {
            switch (operand.special) {
                case Special::Thread: return index * LANES + lane;
                case Special::ProgramX: return machine.place[0];
                case Special::ProgramY: return machine.place[1];
                case Special::ProgramZ: return machine.place[2];
                case Special::ProgramsX: return grid[0];
                case Special::ProgramsY: return grid[1];
                case Special::ProgramsZ: return grid[2];
                case Special::Lane: return lane;
                case Special::Threads: return machine.request.warps * LANES;
                default: return index;
            }
        };
        scratch[lane] = static_cast<u64>(value());
    }
    return scratch.data();
}

inline u64* Warp::write(const Operand& operand) {
    if (operand.kind == Operand::Kind::Sink) return spare_.data();
    if (operand.kind != Operand::Kind::Register) throw Refusal("an operand that is not written");
    return machine.lanes_of(operand.index, index);
}

inline Addresses Warp::addresses(const Operand& operand, u32 mask) const {
    Addresses found{};
    const u64* base = operand.index < 0 ? nullptr : machine.lanes_of(operand.index, index);
    each_lane(mask, [&](int lane) {
        found[lane] = (base ? base[lane] : operand.immediate) + operand.offset;
    });
    return found;
}

}  // namespace emulated
