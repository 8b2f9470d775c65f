// From the text of a PTX module with one kernel to its instructions.
#pragma once

#include "decode.h"
#include "operands.h"

namespace emulated {

class Parser {
public:
    Kernel parse(const std::string& source) {
        const std::string text = without_comments(source);
        const auto entry = text.find(".entry");
        if (entry == std::string::npos) throw Refusal("there is no kernel in this PTX");
        const auto open = text.find('(', entry), close = text.find(')', open);
        kernel_.name = trimmed(text.substr(entry + 6, open - entry - 6));
        for (const auto& parameter : cut(text.substr(open + 1, close - open - 1), ',')) {
            names_.declare_parameter(parameter.substr(parameter.find_last_of(" \t") + 1));
        }
        body(text, text.find('{', close));
        for (Instruction& instruction : kernel_.code) resolve(instruction);
        kernel_.registers = names_.registers();
        kernel_.parameters = names_.parameters();
        return std::move(kernel_);
    }

private:
    // Also without the lines that tell a debugger where it is: they end without a semicolon.
    static std::string without_comments(const std::string& source) {
        std::string kept;
        for (std::size_t at = 0; at < source.size();) {
            const auto end = std::min(source.find('\n', at), source.size());
            std::string line = source.substr(at, end - at);
            line = line.substr(0, line.find("//"));
            const std::string bare = trimmed(line);
            const bool for_debugging = bare.rfind(".loc", 0) == 0 || bare.rfind(".file", 0) == 0;
            if (!for_debugging) kept += line + "\n";
            at = end + 1;
        }
        return kept;
    }

    static bool in_label(char letter) {
        return std::isalnum(static_cast<unsigned char>(letter)) || std::strchr("_$", letter);
    }

    // Between the braces of the kernel; further braces within are scopes of inline assembly.
    void body(const std::string& text, std::size_t open) {
        int depth = 1;
        for (std::size_t at = open + 1; at < text.size() && depth;) {
            const char letter = text[at];
            if (letter == '{' || letter == '}') depth += letter == '{' ? 1 : -1;
            if (std::isspace(static_cast<unsigned char>(letter)) || letter == '{' ||
                letter == '}') {
                at++;
                continue;
            }
            std::size_t end = at;
            while (end < text.size() && in_label(text[end])) end++;
            if (end > at && text[end] == ':') {
                labels_[text.substr(at, end - at)] = static_cast<int>(kernel_.code.size());
                at = end + 1;
                continue;
            }
            end = std::min(text.find(';', at), text.size());
            statement(trimmed(text.substr(at, end - at)));
            at = end + 1;
        }
    }

    void statement(const std::string& text) {
        if (text[0] == '.') {
            if (text.rfind(".reg", 0) == 0) {
                const auto type = text.find('.', 4), names = text.find_first_of(" \t", type);
                names_.declare_registers(text.substr(names));
            } else if (text.rfind(".pragma", 0) != 0) {
                throw Refusal("a declaration that is not known to the emulator: " + text);
            }
            return;
        }
        Instruction instruction;
        instruction.text = text;
        std::string rest = text;
        if (text[0] == '@') {
            const auto end = text.find_first_of(" \t");
            instruction.guard_negated = text[1] == '!';
            const int begin = instruction.guard_negated ? 2 : 1;
            instruction.guard = names_.register_named(text.substr(begin, end - begin));
            rest = trimmed(text.substr(end));
        }
        const auto end = std::min(rest.find_first_of(" \t\n{"), rest.size());
        instruction.mnemonic = cut(rest.substr(0, end), '.');
        rest = trimmed(rest.substr(end));
        if (instruction.mnemonic[0] == "bra") {
            instruction.label = rest;
        } else {
            for (const auto& one : cut(rest, ',')) {
                instruction.operands.push_back(names_.operand(one));
            }
        }
        decode(instruction);
        kernel_.depends |= instruction.execute == wait_for_inputs;
        kernel_.code.push_back(std::move(instruction));
    }

    void resolve(Instruction& instruction) {
        if (instruction.flow != Flow::Branch) return;
        const auto found = labels_.find(instruction.label);
        if (found == labels_.end()) instruction.refuse("a label that is not there");
        instruction.target = found->second;
    }

    Kernel kernel_;
    Names names_;
    std::unordered_map<std::string, int> labels_;
};

}  // namespace emulated
