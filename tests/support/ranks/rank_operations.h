// tests/support/ranks/rank_operations.h -- every operation of the library that communicates, in forms that tests want.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <vector>

#include "autotune/op_def.h"

namespace seqtile::testing {

/// The library's operations.
const autotune::Registry& library();

/// Of each operation that communicates its forms: epilogues, layouts, formats of what is sent, shares that ranks have
/// unequally. Small shapes. Errors: one for which no form is known.
std::vector<autotune::Workload> forms_on_ranks(int world_size, DType dtype);
/// The first form of each.
std::vector<autotune::Workload> operations_on_ranks(int world_size, DType dtype);

/// An operation and, where its default will not do, its configuration.
struct ConfiguredOp {
  autotune::Workload workload;
  std::optional<autotune::Config> config = {};
};
/// The defaults, and configurations that exchange rows in another way: sums in two shots, where the default for few
/// rows takes one; rows that are pulled, or joined; sums whose tiles are joined.
std::vector<ConfiguredOp> with_every_exchange(const std::vector<autotune::Workload>& workloads, const Target& target);
/// The configuration with so many programs that send, where it says how many do: as many as a rank has threads.
autotune::Config with_programs(autotune::Config config, int num_programs);

}  // namespace seqtile::testing
