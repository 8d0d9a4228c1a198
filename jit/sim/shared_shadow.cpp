// jit/sim/shared_shadow.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/shared_shadow.h"

#include <algorithm>

namespace seqtile::sim {

void SharedShadow::reset(uint64_t bytes) {
  bytes_ = bytes;
  cells_.assign(bytes / 16 + 1, ShadowCell());
  words_.clear();
  free_words_.clear();
  free_readers_.clear();
  for (uint32_t i = 0; i < readers_.size(); ++i) free_readers_.push_back(i);
}

std::vector<uint32_t>& SharedShadow::add_readers(ShadowCell& cell, size_t num_threads) {
  if (free_readers_.empty()) {
    free_readers_.push_back(static_cast<uint32_t>(readers_.size()));
    readers_.emplace_back();
  }
  const uint32_t index = free_readers_.back();
  free_readers_.pop_back();
  readers_[index].assign(num_threads, 0);
  if (cell.read != 0) readers_[index][epoch_thread(cell.read)] = epoch_time(cell.read);
  cell.read = ShadowCell::kMany | index;
  return readers_[index];
}

void SharedShadow::clear_readers(ShadowCell& cell) {
  if (cell.read & ShadowCell::kMany) free_readers_.push_back(cell.read & ~ShadowCell::kMany);
  cell.read = 0;
}

void SharedShadow::split(ShadowCell& cell) {
  if (free_words_.empty()) {
    free_words_.push_back(static_cast<uint32_t>(words_.size()));
    words_.emplace_back();
  }
  const uint32_t index = free_words_.back();
  free_words_.pop_back();
  for (int w = 0; w < 4; ++w) {
    ShadowCell& word = words_[index].cells[w];
    word = cell;
    if (w == 0 || (cell.read & ShadowCell::kMany) == 0) continue;
    const std::vector<uint32_t> copy = readers(cell);
    word.read = 0;
    add_readers(word, copy.size()) = copy;
  }
  cell.write = index;
  cell.read = 0;
  cell.flags = ShadowCell::kSplit;
}

void SharedShadow::unite(ShadowCell& cell) {
  const uint32_t index = cell.write;
  for (int w = 1; w < 4; ++w) clear_readers(words_[index].cells[w]);
  cell = words_[index].cells[0];
  free_words_.push_back(index);
}

}  // namespace seqtile::sim
