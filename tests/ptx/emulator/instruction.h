// A kernel as the parser leaves it: instructions whose suffixes, operands and jumps are resolved.
#pragma once

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "numbers.h"
#include "types.h"

namespace emulated {

constexpr int LANES = 32;
constexpr u32 ALL_LANES = 0xffffffff;

// What a user of the emulator is told: always with the instruction that it is about.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Special {
    Thread, ProgramX, ProgramY, ProgramZ, ProgramsX, ProgramsY, ProgramsZ, Lane, Threads, Warp,
};

struct Operand {
    enum class Kind { Register, Immediate, Memory, Special, Sink };

    Kind kind = Kind::Immediate;
    int index = -1;       // of a register; of a memory operand's base register, -1 for none
    u64 immediate = 0;    // also a memory operand's address (or parameter) without a register
    i64 offset = 0;       // of a memory operand
    Special special{};
};

class Warp;
struct Instruction;

// One warp executes an instruction with the lanes of a mask, which are never none.
using Execute = void (*)(Warp&, const Instruction&, u32 mask);

// Up to four inputs of one register each, 32 lanes of them, to one output of 32 lanes.
using Sources = std::array<const u64*, 4>;
using Lanewise = void (*)(const Instruction&, u32 mask, const Sources&, u64* out);

// What the scheduler of a warp does itself.
enum class Flow { Plain, Branch, Return, Barrier };

enum class BooleanOperation { None, And, Or, Xor };
enum class Combination { None, Add, Min, Max, Exchange, CompareAndSwap, And, Or, Xor };
enum class Shuffle { Up, Down, Butterfly, Index };
enum class Rounding { None, Nearest, Zero, Down, Up };
enum class Space { Global, Shared, Parameter };

struct Instruction {
    std::string text;                  // as it stands in the PTX, for messages
    std::vector<std::string> mnemonic;  // cut at its dots; [0] is the operation
    std::vector<std::vector<Operand>> operands;  // braces and bars make one of several registers
    Type type = Type::None;            // the first type suffix
    Type source = Type::None;          // the second one
    int guard = -1;                    // predicate register that lets lanes take part, -1: all
    bool guard_negated = false;

    Flow flow = Flow::Plain;
    std::string label;  // of a branch, and where it leads
    int target = -1;

    Execute execute = nullptr;
    Lanewise lanewise = nullptr;  // for those instructions whose lanes know nothing of each other

    // Read from the suffixes once, since asking the strings would cost at every execution.
    Rounding rounding = Rounding::None;
    bool to_whole = false;  // the rounding is to a whole number
    Shuffle shuffle = Shuffle::Index;
    Combination combination = Combination::None;  // of atomics and reductions
    Space space = Space::Global;
    u32 accepted = 0;  // setp: outcomes of a comparison that make it true (see lanewise.h)
    BooleanOperation combine = BooleanOperation::None;
    bool saturate = false;
    bool propagate_nan = false;
    bool transposed = false;
    bool strong = false;    // volatile or relaxed: it may meet other accesses of its address
    bool acquires = false, releases = false;
    bool touches_global = false;  // loads from or stores to memory that other programs see
    int count = 1;          // elements of a vector, matrices, or columns of a wgmma

    bool has(const char* suffix) const {
        return std::find(mnemonic.begin() + 1, mnemonic.end(), suffix) != mnemonic.end();
    }

    const std::vector<Operand>& operand(std::size_t index) const {
        if (index >= operands.size()) refuse("too few operands");
        return operands[index];
    }

    const Operand& one(std::size_t index) const {
        if (operand(index).empty()) refuse("an empty operand");
        return operands[index][0];
    }

    [[noreturn]] void refuse(const std::string& why) const {
        throw Refusal(why + ": " + text);
    }
};

struct Kernel {
    std::string name;
    bool depends = false;  // it waits for the kernel before by itself (griddepcontrol.wait)
    std::vector<Instruction> code;
    int registers = 0;
    int parameters = 0;
};

template <class Act>
void each_lane(u32 mask, Act act) {
    if (mask == ALL_LANES) {
        for (int lane = 0; lane < LANES; lane++) act(lane);
        return;
    }
    for (; mask; mask &= mask - 1) act(__builtin_ctz(mask));
}

}  // namespace emulated
