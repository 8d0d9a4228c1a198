// autotune/tuning/schedule.cpp -- which bucket is tuned next.
// SPDX-License-Identifier: Apache-2.0
//
// Level 0 searches every eighth bucket of every operation; each further level halves the distance and first tries to
// take over what its neighbours found. Within a level the operation with the largest expected gain comes first: its
// default times, times what tuning has gained on it so far. So a budget that ends early has served all operations
// alike.
#include <algorithm>

#include "autotune/tuning/session.h"

namespace seqtile::autotune {
namespace {

constexpr int kLevels = 4;               // distances 8 4 2 1
constexpr int64_t kAlwaysSearched = 16;  // lengths double from bucket to bucket up to here: neighbours say little
constexpr double kUnknownGain = 0.3;

int level_of(size_t index, size_t count, int64_t hi) {
  if (hi <= kAlwaysSearched) return 0;
  const size_t distance = count - 1 - index;
  for (int level = 0; level < kLevels - 1; ++level)
    if (distance % (size_t{8} >> level) == 0) return level;
  return kLevels - 1;
}

double expected_gain_us(const Item& item, const std::vector<size_t>& pending) {
  double default_us = 0, tuned_us = 0, waiting_us = 0;
  for (const BucketState& state : item.buckets)
    if (state.record && state.record->origin == cache::Origin::tuned) {
      default_us += state.record->default_us;
      tuned_us += state.record->median_us;
    }
  for (const size_t index : pending)
    if (item.buckets[index].record) waiting_us += item.buckets[index].record->default_us;
  return waiting_us * (default_us > 0 ? std::max(0.01, 1 - tuned_us / default_us) : kUnknownGain);
}

}  // namespace

/// (item, bucket) pairs of one level: items by expected gain, a bucket after the longer ones of its item.
std::vector<std::pair<size_t, size_t>> TuningSession::order_level(int level) const {
  struct Entry {
    double gain;
    size_t item;
    std::vector<size_t> pending;
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < items_.size(); ++i) {
    Entry entry{0, i, {}};
    const auto& states = items_[i].buckets;
    for (size_t b = states.size(); b-- > 0;)
      if (!states[b].is_resolved() && level_of(b, states.size(), states[b].bucket.hi) == level)
        entry.pending.push_back(b);
    entry.gain = expected_gain_us(items_[i], entry.pending);
    if (!entry.pending.empty()) entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.gain > b.gain; });
  std::vector<std::pair<size_t, size_t>> order;
  for (const Entry& entry : entries)
    for (const size_t index : entry.pending) order.emplace_back(entry.item, index);
  return order;
}

void TuningSession::tune_all() {
  for (int level = 0; level < kLevels; ++level)
    for (const auto& [item, index] : order_level(level)) {
      if (is_over()) return;
      tune_bucket(items_[item], index, level);
    }
}

void TuningSession::tune_bucket(Item& item, size_t index, int level) {
  BucketState& state = item.buckets[index];
  if (!state.record || state.is_resolved()) return;
  if (state.is_unmeasured()) return;  // its timing failed for a passing reason: the next run begins with it
  begin(item);
  report_progress("tune " + describe(item, state.bucket));
  // A search that was begun in an earlier run is finished; otherwise a neighbour's winner may do.
  const bool begun = measured_trials(item, state.bucket).size() > 1;
  if (options_.merge && level > 0 && !begun && try_merge(item, index)) return;
  search(item, state);
}

}  // namespace seqtile::autotune
