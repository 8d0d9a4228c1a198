// bench/gpu/gpu_goals.cpp -- see gpu_goals.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_goals.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/stats.h"

namespace seqtile::bench {
namespace {

using Json = nlohmann::ordered_json;

/// The values of `field` in all rows that have it.
std::vector<double> values_of(const Json& rows, const char* field) {
  std::vector<double> values;
  for (const Json& row : rows)
    if (row.contains(field)) values.push_back(row[field]);
  return values;
}

void add(Json& goals, const char* goal, double value, double limit, bool is_least) {
  const bool is_met = is_least ? value >= limit : value <= limit;
  goals.push_back({{"goal", goal}, {"value", value}, {is_least ? "at_least" : "at_most", limit}, {"met", is_met}});
}

}  // namespace

Json decide_goals(const Json& rows) {
  Json goals = Json::array();
  if (const auto ratios = values_of(rows, "ratio_to_cublas"); !ratios.empty()) {
    add(goals, "linear of cuBLAS, geometric mean", geometric_mean(ratios), 0.95, true);
    add(goals, "linear of cuBLAS, worst shape", *std::ranges::min_element(ratios), 0.85, true);
  }
  if (const auto ratios = values_of(rows, "portable_to_cublas"); !ratios.empty())
    add(goals, "portable form of cuBLAS, geometric mean", geometric_mean(ratios), 0.45, true);
  if (const auto ratios = values_of(rows, "ratio_to_copy"); !ratios.empty())
    add(goals, "row kernels of a copy's bandwidth, worst", *std::ranges::min_element(ratios), 0.9, true);
  if (const auto us = values_of(rows, "us_above_launch"); !us.empty())
    add(goals, "host time of a launch above cuLaunchKernel, us", *std::ranges::max_element(us), 0.5, false);
  return goals;
}

void print_goals(const Json& goals) {
  for (const Json& goal : goals) {
    const bool is_least = goal.contains("at_least");
    fmt::print("goal: {}: {:.2f}, to reach: {:.2f} or {}: {}\n", goal["goal"].get<std::string>(),
               goal["value"].get<double>(), goal[is_least ? "at_least" : "at_most"].get<double>(),
               is_least ? "more" : "less", goal["met"].get<bool>() ? "met" : "missed");
  }
}

}  // namespace seqtile::bench
