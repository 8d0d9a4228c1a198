// tools/cli/requests/percentiles.cpp -- see percentiles.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/percentiles.h"

#include <algorithm>

namespace seqtile::cli {

void Reservoir::add(double value) {
  if (count_++ < kKept) values_.push_back(value);
  else if (const uint64_t place = random_() % static_cast<uint64_t>(count_); place < kKept) values_[place] = value;
}

Percentiles Reservoir::percentiles() const {
  if (empty()) return {};
  std::vector<double> values = values_;
  const auto at = [&](double share) {
    const auto place = values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
  };
  return {at(0.5), at(0.99)};
}

}  // namespace seqtile::cli
