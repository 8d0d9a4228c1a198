// jit/sim/checks/shared_shadow.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/checks/shared_shadow.h"

#include <utility>

namespace seqtile::sim {

void SharedShadow::reset(uint64_t bytes) {
  bytes_ = bytes;
  cells_.assign(bytes / 16 + 1, ShadowCell());
  parts_.clear();
  free_parts_.clear();
  sets_.clear();
  successors_.clear();
  last_step_ = 0;
  last_set_ = ordered_set_ = ordered_epoch_ = 0;
}

uint32_t SharedShadow::number_of(std::vector<uint32_t> set) {
  sets_.push_back(std::move(set));
  return ShadowCell::kMany | static_cast<uint32_t>(sets_.size() - 1);
}

void SharedShadow::split(ShadowCell& cell) {
  if (free_parts_.empty()) {
    free_parts_.push_back(static_cast<uint32_t>(parts_.size()));
    parts_.emplace_back();
  }
  const uint32_t index = free_parts_.back();
  free_parts_.pop_back();
  for (ShadowCell& part : parts_[index].cells) part = cell;
  cell = ShadowCell();
  cell.write = index;
  cell.flags = ShadowCell::kSplit;
}

void SharedShadow::unite(ShadowCell& cell) {
  const uint32_t index = cell.write;
  free_parts_.push_back(index);
  cell = parts_[index].cells[0];
}

}  // namespace seqtile::sim
