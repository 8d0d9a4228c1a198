// jit/sim/checks/shared_shadow.h -- the last writer and the last readers of each part of a CTA's shared memory.
// SPDX-License-Identifier: Apache-2.0
//
// Unlike the history of global memory the shadow is exact: a pipeline stage that one warp of eight released too early
// must show. State is kept per 16 bytes; a chunk that smaller accesses touch is split into four words, a word into four
// bytes, until a whole write joins it again. An epoch packs a thread of the analysis and its time. Several unordered
// readers are a set. The chunks of one tile go through the same sets: so sets are numbered and shared, and the last
// answer about a set is remembered for the next chunk.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "jit/sim/checks/clocks.h"

namespace seqtile::sim {

constexpr int kTimeBits = 19;
constexpr uint32_t kMaxTime = (1u << kTimeBits) - 1;
constexpr uint32_t kMaxThreads = (1u << (31 - kTimeBits)) - 2;

inline uint32_t make_epoch(uint32_t thread, uint32_t time) { return (thread + 1) << kTimeBits | time; }
inline uint32_t epoch_thread(uint32_t epoch) { return (epoch >> kTimeBits) - 1; }
inline uint32_t epoch_time(uint32_t epoch) { return epoch & kMaxTime; }

/// Lanes of a warp in a ShadowCell; beside numbers there are these.
constexpr uint8_t kNoLane = 0xff, kSeveralLanes = 0xfe;

struct ShadowCell {
  static constexpr uint32_t kMany = 1u << 31;
  static constexpr uint8_t kSplit = 1, kAsync = 2, kStrong = 4, kMbarrier = 8;
  uint32_t write = 0;  ///< epoch; with kSplit the index of the four parts
  uint32_t read = 0;   ///< epoch, or kMany | number of a reader set; with kStrong also of the strong writers
  uint16_t write_line = 0, read_line = 0;
  uint16_t pending = 0;      ///< 1 + warp whose cp.async is in flight here
  uint8_t proxy_fences = 0;  ///< the writer's proxy fences at that time, modulo 256
  uint8_t flags = 0;
  uint8_t write_lane = kNoLane, read_lane = kNoLane;
};

class SharedShadow {
 public:
  void reset(uint64_t bytes);
  uint64_t bytes() const { return bytes_; }

  /// Calls f(cell, offset) for every part of [offset, offset + size); `whole_write` joins split chunks again.
  template <class F>
  void each(uint32_t offset, uint32_t size, bool whole_write, F f);

  /// The epochs of a cell's readers.
  const std::vector<uint32_t>& readers(const ShadowCell& cell) const { return sets_[cell.read & ~ShadowCell::kMany]; }
  /// Adds a reader. Readers for which `is_over` holds, as they are ordered before it, are dropped.
  template <class F>
  void add_reader(ShadowCell& cell, uint32_t epoch, F is_over);
  /// Remembers that all readers of the cell lie before the moment `epoch`.
  void note_ordered(const ShadowCell& cell, uint32_t epoch) { ordered_set_ = cell.read, ordered_epoch_ = epoch; }
  bool is_known_ordered(const ShadowCell& cell, uint32_t epoch) const {
    return cell.read == ordered_set_ && epoch == ordered_epoch_;
  }

 private:
  struct Parts {
    ShadowCell cells[4];
  };
  template <class F>
  void each_part(ShadowCell& cell, uint32_t size, uint32_t begin, uint32_t end, uint32_t at, bool whole_write, F& f);
  void split(ShadowCell& cell);
  void unite(ShadowCell& cell);
  uint32_t number_of(std::vector<uint32_t> set);

  uint64_t bytes_ = 0;
  std::vector<ShadowCell> cells_;
  std::deque<Parts> parts_;  // references stay valid while it grows
  std::vector<uint32_t> free_parts_;
  std::vector<std::vector<uint32_t>> sets_;
  std::unordered_map<uint64_t, uint32_t> successors_;  // set or epoch before, epoch -> set
  uint64_t last_step_ = 0;
  uint32_t last_set_ = 0, ordered_set_ = 0, ordered_epoch_ = 0;
};

template <class F>
void SharedShadow::each(uint32_t offset, uint32_t size, bool whole_write, F f) {
  while (size > 0) {
    ShadowCell& cell = cells_[offset / 16];
    const uint32_t start = offset % 16, part = size < 16 - start ? size : 16 - start;
    if (part == 16 && (cell.flags & ShadowCell::kSplit) == 0) f(cell, offset);
    else each_part(cell, 16, start, start + part, offset - start, whole_write, f);
    offset += part;
    size -= part;
  }
}

/// Bytes [begin, end) of the cell, which describes `size` bytes from offset `at` on.
template <class F>
void SharedShadow::each_part(ShadowCell& cell, uint32_t size, uint32_t begin, uint32_t end, uint32_t at,
                             bool whole_write, F& f) {
  const bool is_whole = begin == 0 && end == size;
  if ((cell.flags & ShadowCell::kSplit) == 0) {
    if (is_whole) return f(cell, at);
    split(cell);
  }
  const uint32_t index = cell.write, part = size / 4;
  for (uint32_t p = begin / part; p * part < end; ++p)
    each_part(parts_[index].cells[p], part, std::max(begin, p * part) - p * part,
              std::min(end, (p + 1) * part) - p * part, at + p * part, whole_write, f);
  if (whole_write && is_whole) unite(cell);
}

template <class F>
void SharedShadow::add_reader(ShadowCell& cell, uint32_t epoch, F is_over) {
  if (cell.read == 0) {
    cell.read = epoch;
    return;
  }
  // one reader is its epoch, which no number of a set equals
  const uint64_t step = uint64_t{cell.read} << 32 | epoch;
  if (step != last_step_) {
    const auto [found, is_new] = successors_.try_emplace(step, 0);
    if (is_new) {
      std::vector<uint32_t> set = {epoch};
      const auto keep = [&](uint32_t reader) {
        if (epoch_thread(reader) != epoch_thread(epoch) && !is_over(reader)) set.push_back(reader);
      };
      if (cell.read & ShadowCell::kMany)
        for (const uint32_t reader : readers(cell)) keep(reader);
      else keep(cell.read);
      const bool is_known = (cell.read & ShadowCell::kMany) != 0 &&
                            std::find(readers(cell).begin(), readers(cell).end(), epoch) != readers(cell).end();
      found->second = is_known ? cell.read : set.size() == 1 ? epoch : number_of(std::move(set));
    }
    last_step_ = step, last_set_ = found->second;
  }
  cell.read = last_set_;
}

}  // namespace seqtile::sim
