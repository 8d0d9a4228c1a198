// autotune/bucket.cpp -- see seqtile/op.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/op.h"

#include "seqtile/error.h"

namespace seqtile::autotune {

std::vector<Bucket> buckets(int64_t lo, int64_t hi) {
  if (lo < 1 || hi < lo || hi > kMaxLength)
    throw Error(ErrorCode::invalid_argument, "lengths " + std::to_string(lo) + ".." + std::to_string(hi) +
                                                 " are not a range within 1.." + std::to_string(kMaxLength));
  std::vector<Bucket> result;
  const int64_t last = bucket_index(hi);
  for (int64_t index = bucket_index(lo); index <= last; ++index) result.push_back(bucket_at(index));
  return result;
}

std::optional<int64_t> nearest_recorded(int64_t index, const std::function<bool(int64_t)>& is_recorded) {
  const int64_t top = bucket_index(kMaxLength);
  for (int64_t distance = 0; distance <= top; ++distance)
    for (const int64_t at : {index + distance, index - distance})
      if (at >= 0 && at <= top && is_recorded(at)) return at;
  return std::nullopt;
}

}  // namespace seqtile::autotune
