// Runs a grid: programs one after another in a drawn order, and in each its warps from barrier to
// barrier, again in a drawn order. What depends on one order only differs from seed to seed.
#pragma once

#include <climits>
#include <numeric>

#include "machine.h"

namespace emulated {

class Scheduler {
public:
    explicit Scheduler(Machine& machine) : machine_(machine) {}

    void run() {
        const auto& grid = machine_.request.grid;
        std::vector<int> order(static_cast<std::size_t>(grid[0]) * grid[1] * grid[2]);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), machine_.random);
        for (int program : order) {
            machine_.place = {program % grid[0], program / grid[0] % grid[1],
                              program / grid[0] / grid[1]};
            machine_.races.begin_program(program);
            run_program();
        }
    }

private:
    static constexpr u64 GARBAGE = 0xdeadbeefcafef00d;  // also a NaN in most formats

    void run_program() {
        Machine& machine = machine_;
        const int count = machine.request.warps;
        machine.registers.assign(
            static_cast<std::size_t>(machine.kernel.registers) * count * LANES, GARBAGE);
        std::fill(machine.shared.begin(), machine.shared.end(), 0xff);
        machine.copies_late = machine.random() & 1;
        std::vector<Warp> warps;
        warps.reserve(count);
        for (int i = 0; i < count; i++) warps.emplace_back(machine, i);
        std::vector<int> order(count);
        std::iota(order.begin(), order.end(), 0);
        for (bool any = true; any;) {
            std::shuffle(order.begin(), order.end(), machine.random);
            for (int index : order) run_warp(warps[index]);
            any = pass_barrier(warps);
        }
    }

    // Once no warp can go on: whether there is something left to do.
    bool pass_barrier(std::vector<Warp>& warps) {
        int waiting = 0, ended = 0;
        for (Warp& warp : warps) (warp.alive ? waiting : ended)++;
        if (!waiting) return false;
        if (ended) machine_.complaints["a barrier that some warps have left behind by ending"]++;
        for (Warp& warp : warps) warp.waiting = false;
        machine_.races.pass_barrier();
        return true;
    }

    // Until it ends or waits. Lanes that have parted are run from the one that is furthest behind,
    // so that they meet again where their paths do: compilers put what follows a branch behind it.
    void run_warp(Warp& warp) {
        while (warp.alive && !warp.waiting) {
            int at = INT_MAX, others = INT_MAX;
            each_lane(warp.alive, [&](int lane) { at = std::min(at, warp.next[lane]); });
            u32 mask = 0;
            each_lane(warp.alive, [&](int lane) {
                if (warp.next[lane] == at) mask |= 1u << lane;
                else others = std::min(others, warp.next[lane]);
            });
            run_lanes(warp, mask, at, others);
        }
    }

    static void leave(Warp& warp, u32 mask, int at) {
        each_lane(mask, [&](int lane) { warp.next[lane] = at; });
    }

    // Lanes that are at one instruction, until they part, end, wait, or come to the others.
    void run_lanes(Warp& warp, u32 mask, int at, int others) {
        const auto& code = machine_.kernel.code;
        while (at < others) {
            if (at >= static_cast<int>(code.size())) throw Refusal("ran beyond the end");
            const Instruction& by = code[at];
            const u32 active = by.guard < 0 ? mask : guarded(warp, by, mask);
            machine_.executed++;
            if (Counters* counters = machine_.counters(by)) counters->executed++;
            switch (by.flow) {
                case Flow::Plain:
                    if (active) execute(warp, by, active);
                    at++;
                    break;
                case Flow::Branch:
                    leave(warp, active, by.target);
                    leave(warp, mask & ~active, at + 1);
                    if (active && active != mask) return;
                    at = active ? by.target : at + 1;
                    break;
                case Flow::Return:
                    if (active && !warp.inputs_there) by.refuse("ends without griddepcontrol.wait");
                    leave(warp, mask, at + 1);
                    warp.alive &= ~active;
                    return;
                case Flow::Barrier:
                    if (active != warp.alive) by.refuse("a barrier without the whole warp");
                    leave(warp, mask, at + 1);
                    warp.waiting = true;
                    return;
            }
        }
        leave(warp, mask, at);
    }

    static void execute(Warp& warp, const Instruction& by, u32 active) {
        if (by.touches_global && !warp.inputs_there) {
            by.refuse("touches memory ahead of griddepcontrol.wait");
        }
        try {
            by.execute(warp, by, active);
        } catch (const std::out_of_range&) {
            by.refuse("too few registers in an operand");
        }
    }

    u32 guarded(Warp& warp, const Instruction& by, u32 mask) {
        const u64* predicate = machine_.lanes_of(by.guard, warp.index);
        u32 active = 0;
        each_lane(mask, [&](int lane) {
            active |= static_cast<u32>((predicate[lane] & 1) != by.guard_negated) << lane;
        });
        return active;
    }

    Machine& machine_;
};

}  // namespace emulated
