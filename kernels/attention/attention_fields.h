// kernels/attention/attention_fields.h -- the fields that all operations of attention have.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "seqtile/operation.h"

namespace seqtile::kernels {

/// Visits the fields, in this order. A `scale` of 0 becomes 1 / sqrt(head_dim).
void attention_fields(FieldVisitor& v, int64_t& heads, int64_t& kv_heads, int64_t& head_dim, bool& causal,
                      double& scale);

}  // namespace seqtile::kernels
