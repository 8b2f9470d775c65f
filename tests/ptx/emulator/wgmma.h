// wgmma.mma_async: a product of the four warps of a warpgroup, operands in shared memory.
//
// Each warp computes its 16 of the 64 rows when it comes to the instruction, not later: that it
// waits before it uses the result, and before its operands are overwritten, is the compiler's care.
// After PTX ISA, sections "Asynchronous Warpgroup Level Matrix Instructions", "Strides", "Matrix
// Descriptor Format" and "Swizzling Modes".
#pragma once

#include "matrix.h"

namespace emulated {

constexpr int DEPTH = 16;  // of bf16
constexpr int CHUNK = 8;   // elements in 16 bytes, which swizzling leaves together

// Where an operand lies. `row` counts along the axis that is not summed over.
class Descriptor {
public:
    Descriptor(const Instruction& by, u64 bits)
        : start_((bits & 0x3fff) << 4), leading_((bits >> 16 & 0x3fff) << 4),
          stride_((bits >> 32 & 0x3fff) << 4), mode_(static_cast<int>(bits >> 62)) {
        if (bits >> 49 & 7) by.refuse("a descriptor with a base offset");
    }

    // Of the chunk that begins at (row, k), along the summed axis.
    u64 along_depth(int row, int k) const {
        const u64 core = row / 8, line = row % 8;
        if (!mode_) return start_ + core * stride_ + (k / CHUNK) * leading_ + line * 16;
        return swizzled(start_ + core * stride_ + line * width() + k * 2);
    }

    // Of the chunk that begins at (row, k), along the rows ("MN-major").
    u64 along_rows(const Instruction& by, int row, int k) const {
        if (!mode_) by.refuse("an operand along its rows without swizzling");
        const u64 rows = width() / 2;
        return swizzled(start_ + row / rows * leading_ + (k / 8) * stride_ + k % 8 * width() +
                        row % rows * 2);
    }

private:
    u64 width() const { return mode_ == 1 ? 128 : mode_ == 2 ? 64 : 32; }  // bytes

    // The place of a chunk in its line is mixed with the number of the line.
    u64 swizzled(u64 address) const {
        return address ^ (address >> 7 & (width() / 16 - 1)) << 4;
    }

    u64 start_, leading_, stride_;
    int mode_;
};

// Rows of an operand, `DEPTH` numbers each.
using Rows = std::vector<std::array<float, DEPTH>>;

inline Rows fetch(Warp& warp, const Instruction& by, u64 descriptor, int first, int count,
                  bool transposed) {
    const Descriptor place(by, descriptor);
    Rows rows(count);
    u16 chunk[CHUNK];
    const auto get = [&](u64 address) {
        std::memcpy(chunk, reach(warp, by, address, 16, nullptr), sizeof chunk);
    };
    if (!transposed) {
        for (int row = 0; row < count; row++) {
            for (int k = 0; k < DEPTH; k += CHUNK) {
                get(place.along_depth(first + row, k));
                for (int i = 0; i < CHUNK; i++) rows[row][k + i] = from_bf16(chunk[i]);
            }
        }
        return rows;
    }
    for (int k = 0; k < DEPTH; k++) {
        for (int row = 0; row < count; row += CHUNK) {
            get(place.along_rows(by, first + row, k));
            for (int i = 0; i < CHUNK; i++) rows[row + i][k] = from_bf16(chunk[i]);
        }
    }
    return rows;
}

// Operands: D, A (registers or a descriptor), B's descriptor, whether D is added to, the signs of
// A and B, and for those in shared memory whether they are transposed.
inline void multiply_warpgroup(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_whole(by, mask);
    const bool from_registers = by.operand(1).size() == 4;
    for (int sign : {4, 5}) {
        if (warp.uniform(by.one(sign)) != 1) by.refuse("a negated operand");
    }
    const bool a_transposed = !from_registers && warp.uniform(by.one(6));
    const bool b_transposed = warp.uniform(by.one(from_registers ? 6 : 7));
    const int first = warp.index % 4 * 16;
    Matrix<16, DEPTH> a;
    if (from_registers) {
        unpack_rows<from_bf16>(Fragment(warp, by, 1, 4), a);
    } else {
        const Rows rows =
            fetch(warp, by, warp.uniform(by.one(1)), first, 16, a_transposed);
        std::copy(rows.begin(), rows.end(), a.begin());
    }
    const Rows b = fetch(warp, by, warp.uniform(by.one(2)), 0, by.count, b_transposed);
    const bool adds = warp.uniform(by.one(3)) & 1;
    for (int column = 0; column < by.count; column++) {
        // Register 4 (column / 8) + i of a lane, as mma.sync's D for every eight columns.
        for (int half = 0; half < 2; half++) {
            const int i = 2 * half + column % 2;
            u64* out = warp.write(by.operand(0).at(column / 8 * 4 + i));
            for (int group = 0; group < 8; group++) {
                const int lane = 4 * group + column % 8 / 2;
                double sum = adds ? take<float>(out[lane]) : 0;
                for (int k = 0; k < DEPTH; k++) {
                    sum += static_cast<double>(a[group + 8 * half][k]) * b[column][k];
                }
                out[lane] = give(static_cast<float>(sum));
            }
        }
    }
}

}  // namespace emulated
