// What an instruction's mnemonic says, put into the instruction. A further one is a line here.
#pragma once

#include "collective.h"
#include "lanewise_table.h"
#include "wgmma.h"

namespace emulated {

inline Rounding rounding_of(const Instruction& by) {
    if (by.has("rn") || by.has("rni")) return Rounding::Nearest;
    if (by.has("rz") || by.has("rzi")) return Rounding::Zero;
    if (by.has("rm") || by.has("rmi")) return Rounding::Down;
    return by.has("rp") || by.has("rpi") ? Rounding::Up : Rounding::None;
}

inline Combination combination_of(const Instruction& by) {
    static const std::array<std::pair<const char*, Combination>, 8> names = {{
        {"add", Combination::Add}, {"min", Combination::Min}, {"max", Combination::Max},
        {"exch", Combination::Exchange}, {"cas", Combination::CompareAndSwap},
        {"and", Combination::And}, {"or", Combination::Or}, {"xor", Combination::Xor},
    }};
    for (const auto& [name, combination] : names) {
        if (by.has(name)) return combination;
    }
    return Combination::None;
}

inline void read_suffixes(Instruction& by) {
    for (std::size_t i = 1; i < by.mnemonic.size(); i++) {
        const Type type = type_named(by.mnemonic[i]);
        if (type == Type::None) continue;
        (by.type == Type::None ? by.type : by.source) = type;
    }
    by.rounding = rounding_of(by);
    by.to_whole = by.has("rni") || by.has("rzi") || by.has("rmi") || by.has("rpi");
    by.saturate = by.has("sat") || by.has("satfinite");
    by.propagate_nan = by.has("NaN");
    by.transposed = by.has("trans");
    by.strong = by.has("volatile") || by.has("relaxed");
    by.acquires = (by.has("acquire") || by.has("acq_rel")) && !by.has("cta");
    by.releases = (by.has("release") || by.has("acq_rel")) && !by.has("cta");
    if (by.has("shared") || by.has("shared::cta")) by.space = Space::Shared;
    if (by.has("param")) by.space = Space::Parameter;
    for (const auto& [suffix, count] : {std::pair{"v2", 2}, {"v4", 4}, {"v8", 8}, {"x2", 2},
                                        {"x4", 4}}) {
        if (by.has(suffix)) by.count = count;
    }
}

inline std::string joined(const Instruction& by) {
    std::string whole = by.mnemonic[0];
    for (std::size_t i = 1; i < by.mnemonic.size(); i++) whole += "." + by.mnemonic[i];
    return whole;
}

inline Execute load_or_store(Instruction& by) {
    const bool loads = by.mnemonic[0] == "ld";
    // They would order other accesses, as atomics do, and are not looked at for that.
    if (by.acquires || by.releases || by.has("local") || by.has("const")) return nullptr;
    if (by.space == Space::Parameter) return loads ? load_parameter : nullptr;
    return by.type == Type::None ? nullptr : loads ? load : store;
}

inline Execute combining(Instruction& by) {
    by.combination = combination_of(by);
    if (by.combination == Combination::None) return nullptr;
    return by.mnemonic[0] == "redux" ? reduce : atomic;
}

inline Execute shuffling(Instruction& by) {
    by.shuffle = by.has("up")     ? Shuffle::Up
                 : by.has("down") ? Shuffle::Down
                 : by.has("bfly") ? Shuffle::Butterfly
                                  : Shuffle::Index;
    return by.shuffle == Shuffle::Index && !by.has("idx") ? nullptr : shuffle;
}

inline Execute copy(Instruction& by) {
    if (by.has("bulk") || by.has("mbarrier") || !by.has("async")) return nullptr;
    if (by.has("commit_group")) return commit_copies;
    if (by.has("wait_group") || by.has("wait_all")) return wait_for_copies;
    return by.has("shared") && by.has("global") ? copy_async : nullptr;
}

inline Execute matrix_product(Instruction& by) {
    const std::string name = joined(by);
    if (name == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
        return multiply_16_bit<from_bf16>;
    }
    if (name == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") {
        return multiply_16_bit<from_f16>;
    }
    const std::string nvfp4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale."
                              "scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3";
    return name == nvfp4 ? multiply_nvfp4 : nullptr;
}

inline Execute warpgroup_product(Instruction& by) {
    // The others order products, which are done at once here.
    if (by.has("fence") || by.has("commit_group") || by.has("wait_group")) return nothing;
    const std::string name = joined(by), begin = "wgmma.mma_async.sync.aligned.m64n";
    if (name.rfind(begin, 0) != 0) return nullptr;
    by.count = std::stoi(name.substr(begin.size()));
    by.space = Space::Shared;
    const std::string shape = begin + std::to_string(by.count) + "k16.f32.bf16.bf16";
    return name == shape ? multiply_warpgroup : nullptr;
}

// Before this nothing may be touched: it may be launched while the kernel before is running.
inline Execute grid_dependency(Instruction& by) {
    if (by.has("launch_dependents")) return nothing;
    return by.has("wait") ? wait_for_inputs : nullptr;
}

inline Execute prefetching(Instruction& by) {
    return joined(by) == "prefetch.global.L2" ? prefetch : nullptr;
}

inline Execute matrices(Instruction& by) {
    if (!by.has("m8n8") || !by.has("b16") || by.space != Space::Shared) return nullptr;
    return by.mnemonic[0] == "ldmatrix" ? load_matrices : store_matrices;
}

inline Execute ordering(Instruction& by) {
    // Of the paths to shared memory, which are one here. Fences of threads are not known.
    return by.mnemonic[0] == "fence" && by.has("proxy") ? nothing : nullptr;
}

template <Execute ONE>
Execute always(Instruction&) {
    return ONE;
}

inline bool touches_global(const Instruction& by) {
    if (by.mnemonic[0] == "cp") return by.has("global");
    const bool moves = by.execute == load || by.execute == store || by.execute == atomic;
    return moves && by.space == Space::Global;
}

inline Execute execute_of(Instruction& by) {
    using Choose = Execute (*)(Instruction&);
    static const std::unordered_map<std::string, Choose> table = {
        {"mov", always<move>},   {"cvta", always<move>},
        {"shfl", shuffling},     {"redux", combining},
        {"vote", always<vote>},  {"ld", load_or_store},
        {"st", load_or_store},   {"atom", combining},
        {"red", combining},      {"cp", copy},
        {"ldmatrix", matrices},  {"stmatrix", matrices},
        {"mma", matrix_product}, {"wgmma", warpgroup_product},
        {"fence", ordering},     {"griddepcontrol", grid_dependency},
        {"prefetch", prefetching},
    };
    const auto found = table.find(by.mnemonic[0]);
    return found == table.end() ? nullptr : found->second(by);
}

inline void read_comparison(Instruction& by) {
    by.accepted = by.mnemonic.size() > 1 ? accepted_outcomes(by.mnemonic[1]) : 0;
    if (!by.accepted) by.refuse("a comparison that is not known to the emulator");
    if (by.has("and")) by.combine = BooleanOperation::And;
    if (by.has("or")) by.combine = BooleanOperation::Or;
    if (by.has("xor")) by.combine = BooleanOperation::Xor;
}

// A barrier of the whole program, or of a warp, whose lanes are together in any case.
inline void read_barrier(Instruction& by) {
    if (by.has("warp")) {
        by.execute = nothing;
        return;
    }
    const bool whole = by.has("sync") && by.operands.size() == 1 && by.one(0).immediate == 0 &&
                       by.one(0).kind == Operand::Kind::Immediate;
    if (!whole) by.refuse("only barrier 0 of a whole program is known to the emulator");
    by.flow = Flow::Barrier;
}

inline void decode(Instruction& by) {
    const std::string& name = by.mnemonic[0];
    read_suffixes(by);
    if (name == "bra") {
        by.flow = Flow::Branch;
    } else if (name == "ret" || name == "exit") {
        by.flow = Flow::Return;
    } else if (name == "bar" || name == "barrier") {
        read_barrier(by);
    } else if ((by.lanewise = lanewise_of(by))) {
        if (name == "setp") read_comparison(by);
        by.execute = name == "setp" ? set_predicate : run_lanewise;
    } else {
        by.execute = execute_of(by);
        by.touches_global = touches_global(by);
        if (!by.execute) by.refuse("an instruction that is not known to the emulator");
    }
}

}  // namespace emulated
