// tests/support/kernels/kernel_table.h -- the test cases of all operations of the library, for CPUs and GPUs.
// SPDX-License-Identifier: Apache-2.0
//
// CPUs take all lengths of all cases. Simulation is slow, so that a default run simulates a few lengths of some cases;
// slow tests simulate all.
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
  /// Lengths that a default run simulates: 1 and some around the edges of tiles. Empty: none, because another case has
  /// the shape in small.
  std::vector<int64_t> few = {};
};

struct CaseGroup {
  std::string name;
  std::vector<TableCase> cases;
  /// Row kernels: a shape that is small enough for the interpreter.
  std::optional<KernelCase> narrow = {};
};

/// Cases of operations of one process.
const std::vector<CaseGroup>& kernel_table();
/// Cases of operations over ranks, run as one of three ranks with preset data of the peers.
const std::vector<CaseGroup>& rank_table();
/// A group of either table. Fails the test if no group has this name.
const std::vector<TableCase>& cases_of(const std::string& group);

/// Checks on all CPU targets that this machine executes, in all dtypes: the lengths of a default run, or all.
void check_on_cpus(const std::string& group);
void check_all_on_cpus(const std::string& group);
/// Checks on all simulated GPUs, in all dtypes: the lengths of a default run, or all.
void simulate_few(const std::string& group);
void simulate_all(const std::string& group);

}  // namespace seqtile::testing
