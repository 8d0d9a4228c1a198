// autotune/nearest_bucket.h -- the bucket whose record serves one without a record.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

namespace seqtile::autotune {

/// Position of the bucket whose record serves the bucket at `index` where that has none: the nearest on the ladder, the
/// longer one of two. A kernel tuned for more rows loses less than one tuned for fewer. Engine and `explain` call this
/// one function.
std::optional<int64_t> nearest_recorded(int64_t index, const std::function<bool(int64_t)>& is_recorded);

}  // namespace seqtile::autotune
