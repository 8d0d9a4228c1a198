// tools/cli/lookup_stream.cpp -- see lookup_stream.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/lookup_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "autotune/bucket.h"

namespace seqtile::cli {
namespace {

constexpr size_t kMissLines = 5;

struct Lookup {
  const ServedOperation* operation;
  int64_t length;
};

/// Groups of lookups, in the order of the stream, so that every group is timed as the server would run it.
class GroupTimer {
 public:
  explicit GroupTimer(LookupReport& report) : report_(report) {}

  void add(const Lookup& lookup) {
    group_[size_++] = lookup;
    if (size_ == kLookupGroup) flush();
  }

  void flush() {
    if (size_ == 0) return;
    bool found[kLookupGroup];
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < size_; ++i) found[i] = group_[i].operation->handle.lookup(group_[i].length);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    if (size_ == kLookupGroup || times_.empty()) times_.push_back(time.count() / size_);
    for (int i = 0; i < size_; ++i)
      if (!found[i]) note_miss(group_[i]);
    report_.lookups += size_;
    size_ = 0;
  }

  std::vector<double>& times() { return times_; }

 private:
  void note_miss(const Lookup& lookup) {
    ++report_.misses;
    if (report_.miss_lines.size() < kMissLines)
      report_.miss_lines.push_back(fmt::format("{}, length {}: {}", lookup.operation->label, lookup.length,
                                               lookup.operation->handle.explain(lookup.length).reason));
  }

  LookupReport& report_;
  Lookup group_[kLookupGroup];
  int size_ = 0;
  std::vector<double> times_;
};

}  // namespace

Percentiles percentiles(std::vector<double>& values) {
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto place = values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
  };
  return {at(0.5), at(0.99)};
}

LookupReport look_up_all(std::span<const ServedOperation> operations, std::span<const PlannedCall> calls) {
  LookupReport report;
  GroupTimer timer(report);
  std::vector<std::vector<bool>> touched(operations.size());
  for (const PlannedCall& call : calls) {
    for (size_t i = 0; i < operations.size(); ++i) {
      const int64_t length = operations[i].length_in(call);
      if (length == 0) continue;
      timer.add({&operations[i], length});
      const size_t index = autotune::bucket_index(length);
      if (touched[i].size() <= index) touched[i].resize(index + 1);
      touched[i][index] = true;
    }
  }
  timer.flush();
  for (const auto& buckets : touched) report.buckets += std::count(buckets.begin(), buckets.end(), true);
  report.lookup_ns = percentiles(timer.times());
  return report;
}

}  // namespace seqtile::cli
