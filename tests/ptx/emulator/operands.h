// From the text of an operand to the operand: registers, numbers, places in memory.
#pragma once

#include <cctype>
#include <unordered_map>

#include "instruction.h"

namespace emulated {

inline std::string trimmed(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Cut at a separator that stands in no brackets.
inline std::vector<std::string> cut(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (char letter : text) {
        if (letter == '{' || letter == '[') depth++;
        if (letter == '}' || letter == ']') depth--;
        if (letter == separator && depth == 0) {
            parts.push_back(trimmed(part));
            part.clear();
        } else {
            part += letter;
        }
    }
    if (!trimmed(part).empty()) parts.push_back(trimmed(part));
    return parts;
}

// What has been declared in a kernel, and the numbers its registers have here.
class Names {
public:
    // ".reg .b32 %r<10>" or ".reg .b32 first, second"
    void declare_registers(const std::string& list) {
        for (const std::string& one : cut(list, ',')) {
            const auto bracket = one.find('<');
            if (bracket == std::string::npos) {
                number(one);
                continue;
            }
            const int count = std::stoi(one.substr(bracket + 1));
            for (int i = 0; i < count; i++) number(one.substr(0, bracket) + std::to_string(i));
        }
    }

    void declare_parameter(const std::string& name) {
        const auto next = static_cast<u64>(parameters_.size());
        parameters_.emplace(name, next);
    }

    int registers() const { return static_cast<int>(registers_.size()); }
    int parameters() const { return static_cast<int>(parameters_.size()); }

    int register_named(const std::string& name) const {
        const auto found = registers_.find(name);
        if (found == registers_.end()) throw Refusal("a name that is not known: " + name);
        return found->second;
    }

    // An operand is one register or several in braces, or a pair of predicates with a bar.
    std::vector<Operand> operand(const std::string& text) const {
        std::vector<Operand> parts;
        if (text[0] == '{') {
            for (const auto& one : cut(text.substr(1, text.size() - 2), ',')) {
                parts.push_back(single(one));
            }
        } else {
            for (const auto& one : cut(text, '|')) parts.push_back(single(one));
        }
        return parts;
    }

private:
    void number(const std::string& name) { registers_.emplace(name, registers()); }

    Operand single(const std::string& text) const {
        static const std::unordered_map<std::string, Special> specials = {
            {"%tid.x", Special::Thread},      {"%ctaid.x", Special::ProgramX},
            {"%ctaid.y", Special::ProgramY},  {"%ctaid.z", Special::ProgramZ},
            {"%nctaid.x", Special::ProgramsX}, {"%nctaid.y", Special::ProgramsY},
            {"%nctaid.z", Special::ProgramsZ}, {"%laneid", Special::Lane},
            {"%ntid.x", Special::Threads},    {"%warpid", Special::Warp},
        };
        Operand operand;
        const auto special = specials.find(text);
        if (text == "_") {
            operand.kind = Operand::Kind::Sink;
        } else if (text[0] == '[') {
            operand = memory(trimmed(text.substr(1, text.size() - 2)));
        } else if (special != specials.end()) {
            operand.kind = Operand::Kind::Special;
            operand.special = special->second;
        } else if (is_number(text) || text == SHARED) {
            operand.immediate = number_of(text);
        } else {
            operand.kind = Operand::Kind::Register;
            operand.index = register_named(text);
        }
        return operand;
    }

    // "register", "register + offset" (which may be negative), or the name of a parameter
    Operand memory(const std::string& text) const {
        Operand operand;
        operand.kind = Operand::Kind::Memory;
        const auto sign = text.find_first_of("+-", 1);
        const std::string base = trimmed(text.substr(0, sign));
        if (sign != std::string::npos) {
            const std::string offset = trimmed(text.substr(sign + 1));
            operand.offset = std::stoll(offset, nullptr, 0);
            if (text[sign] == '-') operand.offset = -operand.offset;
        }
        const auto parameter = parameters_.find(base);
        if (parameter != parameters_.end()) {
            operand.immediate = parameter->second;
        } else if (is_number(base) || base == SHARED) {
            operand.immediate = number_of(base);
        } else {
            operand.index = register_named(base);
        }
        return operand;
    }

    static bool is_number(const std::string& text) {
        return std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-' ||
               text == "true" || text == "false";
    }

    static u64 number_of(const std::string& text) {
        if (text == SHARED || text == "false") return 0;  // Triton's shared memory begins at 0
        if (text == "true") return 1;
        const bool is_float = text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]);
        if (is_float) return std::stoull(text.substr(2), nullptr, 16);
        if (text[0] == '-') return static_cast<u64>(std::stoll(text, nullptr, 0));
        return std::stoull(text, nullptr, 0);
    }

    static constexpr const char* SHARED = "global_smem";

    std::unordered_map<std::string, int> registers_;
    std::unordered_map<std::string, u64> parameters_;
};

}  // namespace emulated
