// planner/solver/memory_cuts.cpp -- see memory_cuts.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/memory_cuts.h"

#include <numeric>

namespace seqtile::planner {

MemoryCuts::MemoryCuts(const ProblemModel& all) : all_(all) {
  const auto num_steps = static_cast<size_t>(all.num_steps);
  std::vector<char> begins(num_steps), ends(num_steps);  // ends: after the step
  begins[0] = ends.back() = true;                        // memory held all the time
  for (const ProblemModel::Live& live : all.live) {
    begins[static_cast<size_t>(live.begin)] = true;
    ends[static_cast<size_t>(live.end) - 1] = true;
  }
  std::vector<size_t> before(num_steps + 1);  // number of cuts before each step
  bool has_more = false;
  for (size_t step = 0; step < num_steps; ++step) {
    has_more = has_more || begins[step];
    const bool is_cut = has_more && ends[step];
    if (is_cut) has_more = false;
    before[step + 1] = before[step] + is_cut;
  }
  num_cuts_ = before.back();
  for (const ProblemModel::Live& live : all.live)
    ranges_.push_back({before[static_cast<size_t>(live.begin)], before[static_cast<size_t>(live.end)]});
}

std::vector<double> MemoryCuts::of(const std::vector<int>& assignment) const {
  const auto value = [&](size_t variable) { return static_cast<size_t>(assignment[variable]); };
  std::vector<double> bytes(num_cuts_ + 1);  // at first the difference between each cut and the previous one
  for (size_t v = 0; v < all_.memory.size(); ++v) bytes[0] += all_.memory[v][value(v)];
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const double held = all_.live[i].bytes[value(static_cast<size_t>(all_.live[i].variable))];
    bytes[ranges_[i].first] += held;
    bytes[ranges_[i].end] -= held;
  }
  bytes.pop_back();
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return bytes;
}

Values MemoryCuts::priced(const std::vector<double>& prices) const {
  std::vector<double> until(num_cuts_ + 1);
  std::partial_sum(prices.begin(), prices.end(), until.begin() + 1);
  Values sums = all_.memory;
  for (auto& of_variable : sums)
    for (double& sum : of_variable) sum *= until.back();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const double price = until[ranges_[i].end] - until[ranges_[i].first];
    if (price == 0) continue;
    std::vector<double>& of_variable = sums[static_cast<size_t>(all_.live[i].variable)];
    for (size_t value = 0; value < of_variable.size(); ++value) of_variable[value] += price * all_.live[i].bytes[value];
  }
  return sums;
}

Values MemoryCuts::at(size_t cut) const {
  std::vector<double> prices = no_prices();
  prices[cut] = 1;
  return priced(prices);
}

}  // namespace seqtile::planner
