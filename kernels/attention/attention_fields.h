// kernels/attention/attention_fields.h -- the fields that all operations of attention have.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "seqtile/operation.h"

namespace seqtile::kernels {

void attention_fields(FieldVisitor& v, int64_t& heads, int64_t& kv_heads, int64_t& head_dim, bool& causal,
                      double& scale);

}  // namespace seqtile::kernels
