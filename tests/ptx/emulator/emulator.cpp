// The emulated card's interface for Python: load PTX, run a grid of it, ask for an instruction.
//
// One kernel runs at a time, and nothing here may be called from two threads at once. Functions
// give -1 or nullptr where something is refused; `emulator_error` then says what and where.

#include "parser.h"
#include "scheduler.h"

namespace {

std::string last_error;
std::vector<std::unique_ptr<emulated::Kernel>> kernels;

std::string program_of(const emulated::Machine& machine) {
    const auto& place = machine.place;
    return "program (" + std::to_string(place[0]) + ", " + std::to_string(place[1]) + ", " +
           std::to_string(place[2]) + "): ";
}

}  // namespace

extern "C" {

const char* emulator_error() {
    return last_error.c_str();
}

// The number of the kernel that `ptx` has.
int emulator_load(const char* ptx) {
    try {
        kernels.push_back(std::make_unique<emulated::Kernel>(emulated::Parser().parse(ptx)));
        return static_cast<int>(kernels.size()) - 1;
    } catch (const std::exception& error) {
        last_error = error.what();
        return -1;
    }
}

int emulator_parameters(int kernel) {
    return kernels.at(kernel)->parameters;
}

int emulator_instructions(int kernel) {
    return static_cast<int>(kernels.at(kernel)->code.size());
}

const char* emulator_text(int kernel, int instruction) {
    return kernels.at(kernel)->code.at(instruction).text.c_str();
}

// Instructions that warps have executed.
long long emulator_run(int kernel, const emulated::Request* request) {
    emulated::Machine machine(*kernels.at(kernel), *request);
    last_error.clear();
    try {
        emulated::Scheduler(machine).run();
    } catch (const std::exception& error) {
        last_error = program_of(machine) + error.what();
    }
    for (const auto& [complaint, times] : machine.complaints) {
        last_error += "\n" + complaint + " (" + std::to_string(times) + " times)";
    }
    return last_error.empty() ? machine.executed : -1;
}

}  // extern "C"
