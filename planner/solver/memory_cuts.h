// planner/solver/memory_cuts.h -- the steps at which a plan may hold the most, and what is held there.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/solver/model.h"

namespace seqtile::planner {

/// By variable, by value.
using Values = std::vector<std::vector<double>>;

/// Cuts through the lives of what is held: the steps behind which something is given back, as far as something has come
/// since the one before. A plan keeps a budget where it does so at each of them.
class MemoryCuts {
 public:
  /// The model outlives this.
  explicit MemoryCuts(const ProblemModel& all);

  size_t count() const { return num_cuts_; }
  std::vector<double> no_prices() const { return std::vector<double>(num_cuts_); }
  /// Bytes at every cut.
  std::vector<double> of(const std::vector<int>& assignment) const;
  /// The sum over the cuts of price times bytes.
  Values priced(const std::vector<double>& prices) const;
  /// Bytes at one of them.
  Values at(size_t cut) const;

 private:
  struct Range {
    size_t first, end;
  };
  const ProblemModel& all_;
  size_t num_cuts_ = 0;
  std::vector<Range> ranges_;  ///< by live: the cuts in its time
};

}  // namespace seqtile::planner
