// tests/support/ranks/rank_operations.h -- all operations of the library that communicate, in forms for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::testing {

/// The registry of the library.
const autotune::Registry& library();

/// All forms of the operations that communicate: epilogues, layouts, formats of sent rows, unequal shares. Shapes are
/// small. Errors: internal for an operation without a known form.
std::vector<autotune::Workload> forms_on_ranks(int world_size, DType dtype);
/// The first form of each operation.
std::vector<autotune::Workload> operations_on_ranks(int world_size, DType dtype);

/// An operation, with a configuration if the default is not the one to test.
struct ConfiguredOp {
  autotune::Workload workload;
  std::optional<autotune::Config> config = {};
};
/// The workloads with their defaults, and with configurations that exchange rows in other ways: sums in two shots (the
/// default for few rows has one shot), pulled rows, joined rows, sums with joined tiles.
std::vector<ConfiguredOp> with_every_exchange(const std::vector<autotune::Workload>& workloads, const Target& target);
/// The configuration with `num_programs` programs that send, if it has such a parameter: one for each thread of a rank.
autotune::Config with_programs(autotune::Config config, int num_programs);

}  // namespace seqtile::testing
