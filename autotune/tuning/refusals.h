// autotune/tuning/refusals.h -- why candidates failed, said once a reason.
// SPDX-License-Identifier: Apache-2.0
//
// What one candidate is refused for, many are: two details are one reason where they differ only in the kernel's name
// and in numbers. The first one's words stand for all.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "autotune/runner.h"

namespace seqtile::autotune {

class Refusals {
 public:
  /// True for the first candidate of a reason.
  bool add(const Config& config, const Verdict& verdict);
  /// "7 crash, signal 11 (first {...})", the reasons divided by "; "; empty without one.
  std::string text() const;
  /// The same of the most frequent reason alone; of equally frequent ones the first.
  std::string main_reason() const;

 private:
  struct Reason {
    std::string distinct, first_outcome, first_config;
    int64_t count = 0;
    std::string text() const;
  };
  std::vector<Reason> reasons_;
};

/// A verdict's detail without the kernel's name before it.
std::string detail_of(const Verdict& verdict);

}  // namespace seqtile::autotune
