// tools/cli/ranks/rank_reference.h -- what an operation of several ranks should give, from the operands of all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "autotune/op_def.h"
#include "jit/fabric/core/fabric.h"

namespace seqtile::cli {

/// Collective: the outputs of this rank's call, rows `rows` of them, as OpDef::reference gives them:
/// fused_allgather_and_linear or fused_linear_and_reducescatter. Ranks may ask for other rows, and for none; they give
/// each other what follows from their own operands. Tensors lie in host memory.
std::vector<std::vector<double>> rank_reference(const autotune::Registry& registry, const autotune::Problem& own,
                                                Fabric& fabric, std::span<const int64_t> rows);

}  // namespace seqtile::cli
