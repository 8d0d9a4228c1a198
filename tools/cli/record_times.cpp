// tools/cli/record_times.cpp -- see record_times.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/record_times.h"

#include <bit>
#include <map>

#include "autotune/bucket.h"

namespace seqtile::cli {
namespace {

struct Point {
  double tuned_us, default_us;
};

/// Measured times by length, at the upper ends of the buckets.
using Curve = std::map<int64_t, Point>;

Curve curve_of(const std::vector<cache::Record>& records) {
  Curve curve;
  for (const cache::Record& record : records)
    if (record.bucket_version == autotune::kBucketVersion && record.median_us > 0 && record.default_us > 0)
      curve[record.hi] = {record.median_us, record.default_us};
  return curve;
}

/// Above the last point the time grows with the length.
Point time_at(const Curve& curve, int64_t length) {
  const auto above = curve.lower_bound(length);
  if (above == curve.end()) {
    const auto& [hi, last] = *curve.rbegin();
    const double scale = static_cast<double>(length) / static_cast<double>(hi);
    return {last.tuned_us * scale, last.default_us * scale};
  }
  if (above == curve.begin() || above->first == length) return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(length - below->first) / static_cast<double>(above->first - below->first);
  const auto mix = [&](double a, double b) { return a + share * (b - a); };
  return {mix(below->second.tuned_us, above->second.tuned_us), mix(below->second.default_us, above->second.default_us)};
}

}  // namespace

std::vector<OperationTimes> record_times(const autotune::Registry& registry,
                                         std::span<const ServedOperation> operations,
                                         std::span<const PlannedCall> calls, Device& device,
                                         cache::TuningStore& store) {
  std::vector<OperationTimes> list;
  for (const ServedOperation& operation : operations) {
    const autotune::OpDef& op = registry.find(operation.workload.operation);
    const auto key = autotune::make_key(op, operation.workload, device.info(), autotune::TuneOptions{}.policy);
    const Curve curve = curve_of(store.records(key));
    OperationTimes times{operation.label};
    std::map<int64_t, int64_t> counts;
    for (const PlannedCall& call : calls)
      if (const int64_t length = operation.length_in(call)) ++counts[length];
    for (const auto& [length, count] : counts) {
      times.calls += count;
      if (curve.empty()) continue;
      const Point exact = time_at(curve, length);
      const int64_t padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
      times.tuned_s += 1e-6 * exact.tuned_us * count;
      times.default_s += 1e-6 * exact.default_us * count;
      times.padded_s += 1e-6 * time_at(curve, padded).tuned_us * count;
    }
    list.push_back(std::move(times));
  }
  return list;
}

}  // namespace seqtile::cli
