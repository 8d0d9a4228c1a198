// tests/support/kernels/kernel_table.h -- what every operation of the library is tested at, on CPUs and on GPUs alike.
// SPDX-License-Identifier: Apache-2.0
//
// CPUs take all lengths of all cases. Simulation is slow, so that a default run simulates a few lengths of some cases,
// and slow tests simulate all.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tests/support/kernels/kernel_cases.h"

namespace seqtile::testing {

inline constexpr DType kKernelDTypes[] = {DType::f32, DType::bf16, DType::f16};

struct TableCase {
  KernelCase kernel;
  std::vector<int64_t> lengths;
  /// Those that a default run simulates: 1 and some around the edges of tiles. Empty: none, another case has the shape
  /// in small.
  std::vector<int64_t> few = {};
};

struct CaseGroup {
  std::string name;
  std::vector<TableCase> cases;
  /// Row kernels: a shape that is small enough for the interpreter.
  std::optional<KernelCase> narrow = {};
};

/// Operations of one process.
const std::vector<CaseGroup>& kernel_table();
/// Operations over ranks, as one of three whose peers' data is preset.
const std::vector<CaseGroup>& rank_table();
/// A group of either; fails the test where there is none of this name.
const std::vector<TableCase>& cases_of(const std::string& group);

/// On all targets of CPUs that this machine executes, in every dtype: a default run's lengths of each, or all of them.
void check_on_cpus(const std::string& group);
void check_all_on_cpus(const std::string& group);
/// On all simulated GPUs: a default run's lengths, or all of them, in every dtype.
void simulate_few(const std::string& group);
void simulate_all(const std::string& group);

}  // namespace seqtile::testing
