// Matrix instructions of one warp: ldmatrix, stmatrix and mma.sync.
//
// How a warp's registers hold a matrix is from PTX ISA, sections "Matrix Fragments for mma.m16n8k16
// with floating point type", "... for mma.m16n8k64", "ldmatrix" and "Block Scaling". A lane's
// group is lane / 4, its place in the group lane % 4.
#pragma once

#include "access.h"

namespace emulated {

inline int group_of(int lane) { return lane / 4; }
inline int place_of(int lane) { return lane % 4; }

inline void count_rows(Warp& warp, const Instruction& by, const Addresses& addresses) {
    count(warp, by, Space::Shared, static_cast<u32>(low_bits(8 * by.count)), addresses, 16);
}

// Matrices of 8 x 8 elements of 16 bits; lanes 8 m to 8 m + 7 bring the addresses of matrix m's
// rows, and every lane gets two neighbours of each matrix.
inline void load_matrices(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_whole(by, mask);
    const Addresses addresses = warp.addresses(by.one(1), mask);
    count_rows(warp, by, addresses);
    for (int m = 0; m < by.count; m++) {
        u16 matrix[8][8];
        for (int row = 0; row < 8; row++) {
            std::memcpy(matrix[row], reach(warp, by, addresses[8 * m + row], 16, nullptr), 16);
        }
        u64* out = warp.write(by.operand(0).at(m));
        for (int lane = 0; lane < LANES; lane++) {
            const int row = group_of(lane), column = 2 * place_of(lane);
            const u32 low = by.transposed ? matrix[column][row] : matrix[row][column];
            const u32 high = by.transposed ? matrix[column + 1][row] : matrix[row][column + 1];
            out[lane] = low | high << 16;
        }
    }
}

inline void store_matrices(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_whole(by, mask);
    const Addresses addresses = warp.addresses(by.one(0), mask);
    count_rows(warp, by, addresses);
    for (int m = 0; m < by.count; m++) {
        u16 matrix[8][8];
        Registers scratch;
        const u64* in = warp.read(by.operand(1).at(m), scratch);
        for (int lane = 0; lane < LANES; lane++) {
            const int row = group_of(lane), column = 2 * place_of(lane);
            u16& low = by.transposed ? matrix[column][row] : matrix[row][column];
            u16& high = by.transposed ? matrix[column + 1][row] : matrix[row][column + 1];
            low = static_cast<u16>(in[lane]);
            high = static_cast<u16>(in[lane] >> 16);
        }
        for (int row = 0; row < 8; row++) {
            const u64 address = addresses[8 * m + row];
            std::memcpy(reach(warp, by, address, 16, matrix[row]), matrix[row], 16);
        }
    }
}

// One operand's registers, all lanes of them.
struct Fragment {
    Fragment(Warp& warp, const Instruction& by, std::size_t operand, std::size_t registers) {
        const auto& held = by.operand(operand);
        if (held.size() != registers) by.refuse("an operand of another number of registers");
        for (std::size_t i = 0; i < registers; i++) {
            Registers scratch;
            std::copy_n(warp.read(held[i], scratch), LANES, lanes[i].begin());
        }
    }

    std::array<Registers, 4> lanes;
};

template <int ROWS, int COLUMNS>
using Matrix = std::array<std::array<float, COLUMNS>, ROWS>;

// A of 16 x 16 16-bit numbers from its four registers, also wgmma's (whose warp has 16 of 64 rows).
template <float (*READ)(u64)>
void unpack_rows(const Fragment& a, Matrix<16, 16>& out) {
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = group_of(lane) + 8 * (i & 1), k = 2 * place_of(lane) + 8 * (i >> 1);
            out[row][k] = READ(a.lanes[i][lane]);
            out[row][k + 1] = READ(a.lanes[i][lane] >> 16);
        }
    }
}

// C and D: register i of a lane is row group + 8 (i / 2), column 2 place + i % 2.
inline int output_row(int lane, int i) { return group_of(lane) + 8 * (i >> 1); }
inline int output_column(int lane, int i) { return 2 * place_of(lane) + (i & 1); }

// D = A B + C, summed as doubles and rounded once: the order of the card's sums is not specified.
template <int DEPTH>
void multiply(Warp& warp, const Instruction& by, const Matrix<16, DEPTH>& a,
              const Matrix<DEPTH, 8>& b) {
    const Fragment c(warp, by, 3, 4);
    double sums[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            sums[output_row(lane, i)][output_column(lane, i)] = take<float>(c.lanes[i][lane]);
        }
    }
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < DEPTH; k++) {
            const double left = a[row][k];
            for (int column = 0; column < 8; column++) sums[row][column] += left * b[k][column];
        }
    }
    for (int i = 0; i < 4; i++) {
        u64* out = warp.write(by.operand(0).at(i));
        for (int lane = 0; lane < LANES; lane++) {
            const double sum = sums[output_row(lane, i)][output_column(lane, i)];
            out[lane] = give(static_cast<float>(sum));
        }
    }
}

// mma.sync of m16n8k16, bf16 or f16 in, float32 out.
template <float (*READ)(u64)>
void multiply_16_bit(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_whole(by, mask);
    Matrix<16, 16> a;
    Matrix<16, 8> b;
    unpack_rows<READ>(Fragment(warp, by, 1, 4), a);
    const Fragment held(warp, by, 2, 2);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 2; i++) {
            const int k = 2 * place_of(lane) + 8 * i;
            b[k][group_of(lane)] = READ(held.lanes[i][lane]);
            b[k + 1][group_of(lane)] = READ(held.lanes[i][lane] >> 16);
        }
    }
    multiply<16>(warp, by, a, b);
}

// Scales of one operand: a register holds four of them, each for 16 of the 64 columns of a row.
// Which lanes of a group are asked is the selector's second number (PTX ISA, section "Block
// Scaling", thread-id-a and thread-id-b); with four to a register the byte is always the first.
struct Scales {
    Scales(Warp& warp, const Instruction& by, std::size_t operand)
        : held(warp, by, operand, 1), thread(0) {
        const auto& selector = by.operand(operand + 1);
        if (selector.size() != 2 || warp.uniform(selector[0]) != 0) by.refuse("a byte selector");
        thread = static_cast<int>(warp.uniform(selector[1]));
    }

    float of(int lane, int block) const {
        return from_e4m3(static_cast<u32>(held.lanes[0][lane] >> (8 * block)) & 255);
    }

    Fragment held;
    int thread;
};

// mma.sync of m16n8k64 on NVFP4: codes of four bits with a scale for each 16 of them.
inline void multiply_nvfp4(Warp& warp, const Instruction& by, u32 mask) {
    warp.need_whole(by, mask);
    Matrix<16, 64> a;
    Matrix<64, 8> b;
    const Fragment a_codes(warp, by, 1, 4), b_codes(warp, by, 2, 2);
    const Scales a_scales(warp, by, 4), b_scales(warp, by, 6);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 64; k++) {
            // Rows 0 to 7 are scaled by the first lane of the chosen half of a group, 8 to 15 by
            // its second.
            const int lane = 4 * (row % 8) + k / 8 % 4;
            const int scaling = 4 * (row % 8) + 2 * a_scales.thread + row / 8;
            const u64 codes = a_codes.lanes[row / 8 + 2 * (k / 32)][lane];
            a[row][k] = from_e2m1(codes >> (4 * (k % 8)) & 15) * a_scales.of(scaling, k / 16);
        }
    }
    for (int column = 0; column < 8; column++) {
        for (int k = 0; k < 64; k++) {
            const int lane = 4 * column + k / 8 % 4;
            const int scaling = 4 * column + b_scales.thread;
            const u64 codes = b_codes.lanes[k / 32][lane];
            b[k][column] = from_e2m1(codes >> (4 * (k % 8)) & 15) * b_scales.of(scaling, k / 16);
        }
    }
    multiply<64>(warp, by, a, b);
}

}  // namespace emulated
