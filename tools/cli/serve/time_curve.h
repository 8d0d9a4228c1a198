// tools/cli/serve/time_curve.h -- what an operation takes at any length, by its records.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "cache/tuning_store.h"

namespace seqtile::cli {

/// A bucket is measured at its hi; the time of a length between two of these is interpolated.
class TimeCurve {
 public:
  struct Point {
    double tuned_us = 0, default_us = 0;
  };

  TimeCurve() = default;
  explicit TimeCurve(const std::vector<cache::Record>& records);

  bool empty() const { return points_.empty(); }
  /// Above the last point the time grows with the length. Requires: not empty.
  Point at(int64_t length) const;

 private:
  std::map<int64_t, Point> points_;  ///< by length, at the upper ends of the buckets
};

}  // namespace seqtile::cli
