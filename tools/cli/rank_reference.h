// tools/cli/rank_reference.h -- what an operation of several ranks should give, from the operands of all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "autotune/op_def.h"

namespace seqtile::cli {

/// The outputs of rank `rank`, rows `rows` of them, as OpDef::reference gives them: fused_allgather_and_linear or
/// fused_linear_and_reducescatter. `ranks` are the calls of all ranks; tensors lie in host memory.
std::vector<std::vector<double>> rank_reference(const autotune::Registry& registry,
                                                std::span<const autotune::Problem* const> ranks, int rank,
                                                std::span<const int64_t> rows);

}  // namespace seqtile::cli
