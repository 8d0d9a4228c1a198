// bench/gpu/gpu_goals.h -- the goals of seqtile_gpu_bench on an H200, and whether they were reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

namespace seqtile::bench {

/// An entry for each goal that `rows`, the benchmarks, decide: {"goal", "value", "at_least" or "at_most", "met"}. A
/// goal whose peer is missing has no entry.
nlohmann::ordered_json decide_goals(const nlohmann::ordered_json& rows);

/// Prints a line for each goal: "goal: linear of cuBLAS, geometric mean: 0.97, to reach: 0.95 or more: met".
void print_goals(const nlohmann::ordered_json& goals);

}  // namespace seqtile::bench
