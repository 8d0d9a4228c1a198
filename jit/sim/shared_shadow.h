// jit/sim/shared_shadow.h -- who wrote and read each part of a CTA's shared memory last.
// SPDX-License-Identifier: Apache-2.0
//
// Unlike the history of global memory this is exact: a stage that one warp of eight released too early must show. State
// is kept per 16 bytes; a chunk that smaller accesses touch is split into four words until a whole write joins it
// again. An epoch packs a thread of the analysis and its time; several unordered readers share a vector of their times.
#pragma once
#include <cstdint>
#include <vector>

#include "jit/sim/clocks.h"

namespace seqtile::sim {

constexpr int kTimeBits = 20;
constexpr uint32_t kMaxTime = (1u << kTimeBits) - 1;
constexpr uint32_t kMaxThreads = (1u << (31 - kTimeBits)) - 2;

inline uint32_t make_epoch(uint32_t thread, uint32_t time) { return (thread + 1) << kTimeBits | time; }
inline uint32_t epoch_thread(uint32_t epoch) { return (epoch >> kTimeBits) - 1; }
inline uint32_t epoch_time(uint32_t epoch) { return epoch & kMaxTime; }

struct ShadowCell {
  static constexpr uint32_t kMany = 1u << 31;
  static constexpr uint8_t kSplit = 1, kAsync = 2;
  uint32_t write = 0;  ///< epoch; with kSplit the index of the four words
  uint32_t read = 0;   ///< epoch, or kMany | index of the readers
  uint16_t write_line = 0, read_line = 0;
  uint16_t pending = 0;      ///< 1 + warp whose cp.async is in flight here
  uint8_t proxy_fences = 0;  ///< of the writer at that time, modulo 256
  uint8_t flags = 0;
};
static_assert(sizeof(ShadowCell) == 16);

class SharedShadow {
 public:
  void reset(uint64_t bytes);
  uint64_t bytes() const { return bytes_; }

  /// Calls f(cell, offset) for every part of [offset, offset + size); `whole_write` joins split chunks again.
  template <class F>
  void each(uint32_t offset, uint32_t size, bool whole_write, F f);

  std::vector<uint32_t>& readers(const ShadowCell& cell) { return readers_[cell.read & ~ShadowCell::kMany]; }
  /// Turns the single reader into a vector of `num_threads` times.
  std::vector<uint32_t>& add_readers(ShadowCell& cell, size_t num_threads);
  void clear_readers(ShadowCell& cell);

 private:
  struct Words {
    ShadowCell cells[4];
  };
  void split(ShadowCell& cell);
  void unite(ShadowCell& cell);

  uint64_t bytes_ = 0;
  std::vector<ShadowCell> cells_;
  std::vector<Words> words_;
  std::vector<uint32_t> free_words_, free_readers_;
  std::vector<std::vector<uint32_t>> readers_;
};

template <class F>
void SharedShadow::each(uint32_t offset, uint32_t size, bool whole_write, F f) {
  while (size > 0) {
    ShadowCell& cell = cells_[offset / 16];
    const uint32_t start = offset % 16, part = size < 16 - start ? size : 16 - start;
    if (part == 16 && (cell.flags & ShadowCell::kSplit) == 0) {
      f(cell, offset);
    } else {
      if ((cell.flags & ShadowCell::kSplit) == 0) split(cell);
      const uint32_t index = cell.write;
      for (uint32_t w = start / 4; w < (start + part + 3) / 4; ++w) f(words_[index].cells[w], offset - start + 4 * w);
      if (whole_write && part == 16) unite(cell);
    }
    offset += part;
    size -= part;
  }
}

}  // namespace seqtile::sim
