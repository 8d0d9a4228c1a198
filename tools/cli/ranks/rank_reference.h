// tools/cli/ranks/rank_reference.h -- the expected results of an operation of several ranks, from all ranks' operands.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "seqtile/fabric.h"
#include "seqtile/op.h"

namespace seqtile::cli {

/// The outputs `rows` of this rank's call, in the form of OpDef::reference. Collective. The operation is
/// fused_allgather_and_linear or fused_linear_and_reducescatter. Ranks may ask for different rows, or for none; each
/// sends the others the values that follow from its own operands. Tensors lie in host memory.
std::vector<std::vector<double>> rank_reference(const autotune::Registry& registry, const autotune::Problem& own,
                                                Fabric& fabric, std::span<const int64_t> rows);

}  // namespace seqtile::cli
