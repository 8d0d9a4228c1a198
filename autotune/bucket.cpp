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

}  // namespace seqtile::autotune
