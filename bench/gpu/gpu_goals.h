// bench/gpu/gpu_goals.h -- what seqtile_gpu_bench has to reach on an H200, and whether it did.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

namespace seqtile::bench {

/// One entry a goal that the benchmarks `rows` decide: {"goal", "value", "limit", "met"}. A goal whose peer was not
/// there has no entry.
nlohmann::ordered_json decide_goals(const nlohmann::ordered_json& rows);

/// A line for each: "goal: linear of cuBLAS, geometric mean: 0.97, to reach: 0.95 or more: met".
void print_goals(const nlohmann::ordered_json& goals);

}  // namespace seqtile::bench
