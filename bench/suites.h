// bench/suites.h -- the benchmark suites, in the order in which they are listed and run.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "bench/environment.h"
#include "bench/harness.h"

namespace seqtile::bench {

/// Each function appends its cases. Requires: `environment` outlives the cases.
void add_linear_cases(std::vector<Case>& cases, Environment& environment);
void add_grouped_cases(std::vector<Case>& cases, Environment& environment);
void add_attention_cases(std::vector<Case>& cases, Environment& environment);
void add_row_cases(std::vector<Case>& cases, Environment& environment);
/// Lookup, call to hand-off, compile time, opening an engine.
void add_host_cases(std::vector<Case>& cases, Environment& environment);
/// Launches on the PTX machine, with and without its checks.
void add_simulate_cases(std::vector<Case>& cases, Environment& environment);
/// Products that communicate inside their launch, forward and backward; collectives.
void add_seqpar_cases(std::vector<Case>& cases, Environment& environment);
void add_seqpar_backward_cases(std::vector<Case>& cases, Environment& environment);
void add_collective_cases(std::vector<Case>& cases, Environment& environment);
/// Calls of no rows: one rank alone, and a barrier of eight.
void add_fabric_cases(std::vector<Case>& cases, Environment& environment);
/// Planning of graphs over meshes.
void add_plan_cases(std::vector<Case>& cases, Environment& environment);
/// The cost of serving a bucket's record, against exhaustive search at lengths that were not tuned.
void add_regret_cases(std::vector<Case>& cases, Environment& environment);

}  // namespace seqtile::bench
