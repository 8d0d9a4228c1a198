// kernels/norm/rms_norm_backward_kernel.h -- the programs of rms_norm_backward: what one rank, or one of several,
// computes.
// SPDX-License-Identifier: Apache-2.0
//
// The grid's first `programs` programs, whatever the length is; each takes an equal run of rows and leaves its part of
// dweight in a workspace. Parts are summed in their own order: groups of up to 16 by whoever arrives last in the group,
// the groups' sums by whoever arrives last of all. So the bits depend on the configuration only.
#pragma once
#include <functional>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/ops/rows.h"

namespace seqtile::kernels::rms_norm_backward_op {

using Operands = RmsNormBackward::Tensors<Var>;

/// RmsNormBackward::workspaces().
struct Workspaces {
  Workspaces() = default;
  Workspaces(KernelBuilder& b, const RmsNormBackward::Tile& tile);
  Var parts, group_sums, arrived;  ///< [programs][n], [groups][n]; a counter for each group and one for all
};

/// One program. `give` gets the sum over all rows [n], in the program that ends last.
void build_rows(KernelBuilder& b, const RmsNormBackward& op, const RmsNormBackward::Tile& tile, const Target& target,
                const Operands& v, const Workspaces& workspaces, const std::function<void(Var dweight)>& give);

/// Columns of a row: gradient of x, and terms of the gradient of the weight.
struct RowGradients {
  std::vector<double> dx, terms;
};
RowGradients reference_row(const RmsNormBackward& op, const std::vector<double>& dy, const std::vector<double>& x,
                           const std::vector<double>& weight);

}  // namespace seqtile::kernels::rms_norm_backward_op
