// kernels/seqpar/rank_call.h -- what each rank brings to a call that all ranks make together.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"

namespace seqtile::kernels::seqpar {

/// Gives the operation its `on_rank`, from its schema and symbols.
void add_rank_call(autotune::OpDef& op);

}  // namespace seqtile::kernels::seqpar
