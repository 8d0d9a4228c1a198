// tools/cli/serve/time_curve.h -- the time of an operation at any length, by its records.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "seqtile/stores.h"

namespace seqtile::cli {

/// A bucket is measured at its hi; times of lengths between two such points are interpolated.
class TimeCurve {
 public:
  struct Point {
    double tuned_us = 0, default_us = 0;
  };

  TimeCurve() = default;
  explicit TimeCurve(const std::vector<cache::Record>& records);

  bool empty() const { return points_.empty(); }
  /// The time grows in proportion to the length beyond the last point. Requires: not empty.
  Point at(int64_t length) const;

 private:
  std::map<int64_t, Point> points_;  ///< points at the upper ends of the buckets, by length
};

}  // namespace seqtile::cli
