// tools/cli/serve/time_curve.cpp -- see time_curve.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/serve/time_curve.h"

#include <iterator>

#include "seqtile/op.h"

namespace seqtile::cli {

TimeCurve::TimeCurve(const std::vector<cache::Record>& records) {
  for (const cache::Record& record : records)
    if (record.bucket_version == autotune::kBucketVersion && record.median_us > 0 && record.default_us > 0)
      points_[record.hi] = {record.median_us, record.default_us};
}

TimeCurve::Point TimeCurve::at(int64_t length) const {
  const auto above = points_.lower_bound(length);
  if (above == points_.end()) {
    const auto& [hi, last] = *points_.rbegin();
    const double scale = static_cast<double>(length) / static_cast<double>(hi);
    return {last.tuned_us * scale, last.default_us * scale};
  }
  if (above == points_.begin() || above->first == length) return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(length - below->first) / static_cast<double>(above->first - below->first);
  const auto mix = [&](double a, double b) { return a + share * (b - a); };
  return {mix(below->second.tuned_us, above->second.tuned_us), mix(below->second.default_us, above->second.default_us)};
}

}  // namespace seqtile::cli
