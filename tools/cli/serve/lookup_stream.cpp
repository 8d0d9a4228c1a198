// tools/cli/serve/lookup_stream.cpp -- see lookup_stream.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/lookup_stream.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <set>

#include "seqtile/op.h"

namespace seqtile::cli {
namespace {

constexpr size_t kMissLines = 5;

/// Times lookups in groups, in the order in which a server makes them.
class GroupTimer {
 public:
  void add(const Handle& handle, int64_t length) {
    group_[size_++] = {&handle, length};
    if (size_ == kLookupGroup) flush();
  }

  /// An incomplete group counts only if there is no complete one.
  Percentiles finish() {
    if (size_ > 0 && times_.empty()) flush();
    return times_.percentiles();
  }

 private:
  struct Lookup {
    const Handle* handle;
    int64_t length;
  };

  void flush() {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < size_; ++i) group_[i].handle->lookup(group_[i].length);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    times_.add(time.count() / size_);
    size_ = 0;
  }

  Lookup group_[kLookupGroup];
  int size_ = 0;
  Reservoir times_;
};

Percentiles time_lookups(std::span<const ServedOperation> operations, std::span<const CountedCall> calls) {
  GroupTimer timer;
  const CallSampler sampler(calls);
  std::mt19937_64 random(1);
  for (int i = 0; i < kTimedCalls; ++i) {
    const PlannedCall& call = sampler.draw(random);
    for (const ServedOperation& operation : operations)
      if (const int64_t length = operation.length_in(call)) timer.add(operation.handle, length);
  }
  return timer.finish();
}

void note_miss(const ServedOperation& operation, int64_t length, int64_t count, LookupReport& report) {
  report.misses += count;
  if (report.miss_lines.size() < kMissLines)
    report.miss_lines.push_back(
        fmt::format("{}, length {}: {}", operation.label, length, operation.handle.explain(length).reason));
}

}  // namespace

std::map<int64_t, int64_t> count_lengths(const ServedOperation& operation, std::span<const CountedCall> calls) {
  std::map<int64_t, int64_t> counts;
  for (const auto& [call, count] : calls)
    if (const int64_t length = operation.length_in(call)) counts[length] += count;
  return counts;
}

LookupReport look_up_all(std::span<const ServedOperation> operations, std::span<const CountedCall> calls) {
  LookupReport report;
  for (const ServedOperation& operation : operations) {
    std::set<size_t> buckets;
    for (const auto& [length, count] : count_lengths(operation, calls)) {
      if (!operation.handle.lookup(length)) note_miss(operation, length, count, report);
      report.lookups += count;
      buckets.insert(autotune::bucket_index(length));
    }
    report.buckets += std::ssize(buckets);
  }
  report.lookup_ns = time_lookups(operations, calls);
  return report;
}

}  // namespace seqtile::cli
