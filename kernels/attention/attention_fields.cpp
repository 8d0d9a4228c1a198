// kernels/attention/attention_fields.cpp -- see attention_fields.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_fields.h"

#include <cmath>
#include <string>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

void attention_fields(FieldVisitor& v, int64_t& heads, int64_t& kv_heads, int64_t& head_dim, bool& causal,
                      double& scale) {
  v.integer("heads", heads, 1, kMaxHeads);
  v.integer("kv_heads", kv_heads, 1, kMaxHeads);
  if (kv_heads > 0 && heads % kv_heads != 0)
    v.refuse("kv_heads",
             "must divide heads (" + std::to_string(heads) + "): equally many query heads share a key head");
  v.integer("head_dim", head_dim, 8, 512);
  if (head_dim % 8) v.refuse("head_dim", "must be a multiple of 8, such as 64, 96, 128 or 256");
  v.flag("causal", causal);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(head_dim));
  v.number("scale", scale, 1e-6, 1e3);
}

}  // namespace seqtile::kernels
