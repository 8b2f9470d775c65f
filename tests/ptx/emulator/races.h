// Which accesses of memory are ordered, and complaints about those that are not.
//
// After the memory model of PTX (PTX ISA, section "Memory Consistency Model"), a little stricter:
//
// - Accesses of one warp are in its order. (Lanes of a warp that race each other are not seen.)
// - Warps of a program are ordered by its barriers: an access is before another warp's if a barrier
//   lies between them. A program's barriers are counted; a count is called an epoch.
// - Programs are ordered by atomics on one address: an addition that releases publishes what its
//   program did before the last barrier, and what it had itself been told; an addition that
//   acquires is told, and its program's warps know it after the next barrier. Relaxed atomics order
//   nothing.
//
// Programs run one after another, so a race is found by what the order would have allowed, not by
// what happened. Two stores of equal bytes are not complained about: their order changes nothing.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "instruction.h"

namespace emulated {

using Complaints = std::map<std::string, long>;  // what was seen, and how often

class Races {
public:
    Races(bool enabled, int programs, std::size_t shared_bytes, Complaints& complaints)
        : enabled_(enabled), programs_(programs), shared_(enabled ? shared_bytes : 0),
          complaints_(complaints) {}

    void begin_program(int program) {
        program_ = program;
        epoch_++;  // of no program before: what they did in shared memory is over
        known_.clear();
        told_.clear();
    }

    void pass_barrier() {
        epoch_++;
        if (!told_.empty()) raise(known_, told_);
    }

    // A load of `bytes`, or a store where `stored` points to what is about to be stored.
    void global(const Instruction& by, int warp, u64 address, int bytes, const void* stored) {
        if (!enabled_) return;
        const auto* values = static_cast<const unsigned char*>(stored);
        for (u64 at = address; at < address + bytes;) {
            const int begin = at & 3;
            const int length = std::min<int>(4 - begin, static_cast<int>(address + bytes - at));
            Word& word = word_at(at >> 2);
            const auto covered = static_cast<unsigned char>(low_bits(length) << begin);
            if (values) {
                const bool equal = !std::memcmp(reinterpret_cast<void*>(at), values, length);
                global_store(by, word, warp, covered, equal);
                values += length;
            } else {
                global_load(by, word, warp, covered);
            }
            at += length;
        }
    }

    // The same in shared memory, where `present` points to what is there.
    void shared(const Instruction& by, int warp, u32 address, int bytes, const void* stored,
                const unsigned char* present) {
        if (!enabled_) return;
        const auto* values = static_cast<const unsigned char*>(stored);
        for (int i = 0; i < bytes; i++) {
            Byte& byte = shared_[address + i];
            if (values) {
                shared_store(by, byte, warp, values[i] == present[i]);
            } else {
                shared_load(by, byte, warp);
            }
        }
    }

    void atomic(u64 address, bool acquires, bool releases) {
        if (!enabled_ || !(acquires || releases)) return;
        Clock& published = published_[address];
        if (acquires) raise(told_, published);
        if (releases) {
            raise(published, known_);
            published.resize(programs_, 0);
            published[program_] = std::max(published[program_], epoch_);
        }
    }

private:
    using Clock = std::vector<u32>;  // for each program: what came before this epoch is known

    struct Access {  // there is one for every word, so that it is kept small
        int program = -1;  // -1: there was none
        u32 warp : 6, epoch : 26;
    };

    // Four bytes of global memory: who last stored and loaded which of them. Of loads also the last
    // one of another warp of the same program, and the last one of another program: not all that
    // there were, but a store that is ordered after these is seldom not ordered after the others.
    struct Word {
        Access store{}, load{}, of_other_warp{}, of_other_program{};
        unsigned char stored = 0, loaded = 0;
    };

    static constexpr int NOBODY = -1, SEVERAL = -2;

    struct Byte {  // of shared memory
        u32 store_epoch = 0, load_epoch = 0;
        int store_warp = NOBODY, load_warp = NOBODY;
    };

    static void raise(Clock& clock, const Clock& to) {
        if (clock.size() < to.size()) clock.resize(to.size(), 0);
        for (std::size_t i = 0; i < to.size(); i++) clock[i] = std::max(clock[i], to[i]);
    }

    Access access_of(int warp) const { return {program_, static_cast<u32>(warp), epoch_}; }

    // Whether an access comes before what `warp` does now.
    bool ordered(const Access& access, int warp) const {
        if (access.program < 0) return true;
        if (access.program == program_) {
            return access.warp == static_cast<u32>(warp) || access.epoch < epoch_;
        }
        const auto index = static_cast<std::size_t>(access.program);
        return index < known_.size() && access.epoch < known_[index];
    }

    void complain(const Instruction& by, const std::string& what) {
        complaints_["race: " + what + ": " + by.text]++;
    }

    std::string owner(const Access& access) const {
        return access.program == program_ ? "another warp" : "another program";
    }

    void global_load(const Instruction& by, Word& word, int warp, unsigned char covered) {
        if (word.stored & covered && !ordered(word.store, warp)) {
            complain(by, "a load of what " + owner(word.store) + " stored");
        }
        const Access now = access_of(warp), last = word.load;
        if (last.program != program_) {
            word.of_other_program = last;
            word.of_other_warp = {};
        } else if (last.warp != now.warp) {
            word.of_other_warp = last;
        }
        word.load = now;
        word.loaded |= covered;
    }

    void global_store(const Instruction& by, Word& word, int warp, unsigned char covered,
                      bool equal) {
        if (word.loaded & covered) {
            for (const Access& load : {word.load, word.of_other_warp, word.of_other_program}) {
                if (ordered(load, warp)) continue;
                complain(by, "a store over what " + owner(load) + " loaded");
                break;
            }
        }
        if (word.stored & covered && !equal && !ordered(word.store, warp)) {
            complain(by, "a store over what " + owner(word.store) + " stored");
        }
        const Access now = access_of(warp);
        const bool same = word.store.program == now.program && word.store.epoch == now.epoch &&
                          word.store.warp == now.warp;
        word.stored = same ? word.stored | covered : covered;
        word.store = now;
        word.loaded &= static_cast<unsigned char>(~covered);
    }

    void shared_load(const Instruction& by, Byte& byte, int warp) {
        if (byte.store_warp != NOBODY && byte.store_warp != warp && byte.store_epoch == epoch_) {
            complain(by, "a load from shared memory of what another warp stored");
        }
        const bool another = byte.load_warp != NOBODY && byte.load_warp != warp &&
                             byte.load_epoch == epoch_;
        byte.load_warp = another ? SEVERAL : warp;
        byte.load_epoch = epoch_;
    }

    void shared_store(const Instruction& by, Byte& byte, int warp, bool equal) {
        if (byte.load_warp != NOBODY && byte.load_warp != warp && byte.load_epoch == epoch_) {
            complain(by, "a store to shared memory over what another warp loads");
        }
        if (byte.store_warp != NOBODY && byte.store_warp != warp && byte.store_epoch == epoch_ &&
            !equal) {
            complain(by, "stores of two warps to one place in shared memory");
        }
        byte.store_warp = warp;
        byte.store_epoch = epoch_;
        byte.load_warp = NOBODY;
    }

    static constexpr u64 PAGE = 1024;  // words
    using Page = std::array<Word, PAGE>;

    Word& word_at(u64 word) {
        const u64 page = word / PAGE;
        if (page != last_page_ || !last_) {
            auto& found = pages_[page];
            if (!found) found = std::make_unique<Page>();
            last_ = found.get();
            last_page_ = page;
        }
        return (*last_)[word % PAGE];
    }

    const bool enabled_;
    const int programs_;
    int program_ = 0;
    u32 epoch_ = 0;   // barriers so far, of all programs together
    Clock known_;     // of the present program
    Clock told_;      // by atomics since its last barrier
    std::unordered_map<u64, Clock> published_;  // by address of an atomic
    std::unordered_map<u64, std::unique_ptr<Page>> pages_;
    Page* last_ = nullptr;
    u64 last_page_ = 0;
    std::vector<Byte> shared_;
    Complaints& complaints_;
};

}  // namespace emulated
