// What an instruction has cost on the way to memory: sectors and wavefronts, counted as it runs.
#pragma once

#include "instruction.h"

namespace emulated {

// Of one instruction over a whole grid. The layout is known to the Python side.
struct Counters {
    i64 executed;    // by warps
    i64 bytes;       // of global memory that lanes asked for
    i64 sectors;     // of 32 bytes that were moved for them
    i64 wavefronts;  // passes through the banks of shared memory
    i64 least;       // what they would be without conflicts
};

using Addresses = std::array<u64, LANES>;

constexpr u64 SECTOR = 32;
constexpr u32 BANKS = 32;  // of four bytes each

inline void count_global(Counters& counters, u32 mask, const Addresses& addresses, int bytes) {
    std::vector<u64> sectors;
    each_lane(mask, [&](int lane) {
        counters.bytes += bytes;
        const u64 first = addresses[lane] / SECTOR, last = (addresses[lane] + bytes - 1) / SECTOR;
        for (u64 sector = first; sector <= last; sector++) sectors.push_back(sector);
    });
    std::sort(sectors.begin(), sectors.end());
    counters.sectors += std::unique(sectors.begin(), sectors.end()) - sectors.begin();
}

// Lanes with wide accesses are served in groups of 128 bytes: all of them, halves or quarters of
// the warp. Within a group a bank gives one word of four bytes at a time, to all who want it.
inline void count_shared(Counters& counters, u32 mask, const Addresses& addresses, int bytes) {
    const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    for (int begin = 0; begin < LANES; begin += lanes) {
        const u32 group = mask & static_cast<u32>(low_bits(lanes) << begin);
        if (!group) continue;
        std::vector<u64> words;
        each_lane(group, [&](int lane) {
            const u64 last = (addresses[lane] + bytes - 1) / 4;
            for (u64 word = addresses[lane] / 4; word <= last; word++) words.push_back(word);
        });
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
        std::array<int, BANKS> wanted{};
        for (u64 word : words) wanted[word % BANKS]++;
        counters.wavefronts += *std::max_element(wanted.begin(), wanted.end());
        counters.least++;
    }
}

}  // namespace emulated
