// tools/cli/requests/percentiles.h -- the median and the 99th percentile of any number of values, in bounded memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace seqtile::cli {

struct Percentiles {
  double p50 = 0, p99 = 0;
};

/// A fair sample of the values: all values up to kKept, then each value with the same chance.
/// Source: J. S. Vitter, "Random sampling with a reservoir", ACM TOMS 1985, algorithm R.
class Reservoir {
 public:
  static constexpr int64_t kKept = 1 << 16;

  void add(double value);
  bool empty() const { return count_ == 0; }
  Percentiles percentiles() const;  ///< zeros without values

 private:
  std::vector<double> values_;
  int64_t count_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace seqtile::cli
