// autotune/nearest_bucket.cpp -- see nearest_bucket.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/nearest_bucket.h"

#include "seqtile/op.h"

namespace seqtile::autotune {

std::optional<int64_t> nearest_recorded(int64_t index, const std::function<bool(int64_t)>& is_recorded) {
  const int64_t top = bucket_index(kMaxLength);
  for (int64_t distance = 0; distance <= top; ++distance)
    for (const int64_t at : {index + distance, index - distance})
      if (at >= 0 && at <= top && is_recorded(at)) return at;
  return std::nullopt;
}

}  // namespace seqtile::autotune
