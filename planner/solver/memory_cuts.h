// planner/solver/memory_cuts.h -- the steps at which a plan's memory can be at its peak, and the bytes held there.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/solver/model.h"

namespace seqtile::planner {

/// Indexed by variable, then by value.
using Values = std::vector<std::vector<double>>;

/// Cuts: the steps after which a device releases something, if anything was added since the previous cut. A plan's peak
/// is at a cut, so a plan keeps a budget if it does so at every cut.
class MemoryCuts {
 public:
  /// Requires: `all` outlives this object.
  explicit MemoryCuts(const ProblemModel& all);

  size_t count() const { return num_cuts_; }
  std::vector<double> no_prices() const { return std::vector<double>(num_cuts_); }
  /// Bytes that an assignment holds at every cut.
  std::vector<double> of(const std::vector<int>& assignment) const;
  /// The sum over the cuts of price times bytes.
  Values priced(const std::vector<double>& prices) const;
  /// Bytes at one cut.
  Values at(size_t cut) const;

 private:
  struct Range {
    size_t first, end;
  };
  const ProblemModel& all_;
  size_t num_cuts_ = 0;
  std::vector<Range> ranges_;  ///< by Live: the cuts during which it is held
};

}  // namespace seqtile::planner
