// autotune/engine/overlap.h -- decides exactly, for any strides, if two tensors share memory.
// SPDX-License-Identifier: Apache-2.0
//
// A tensor is a set of runs of bytes: one run (its innermost dimension, without gaps) at each base + sum of index *
// stride. Two tensors share a byte if two of their runs do, which depends on the difference of two such sums. Column
// slices of one buffer, such as q and k of a packed projection, alternate without sharing a byte, so that comparing
// first and last bytes is not enough.
// Requires: an innermost stride of 1 in every tensor, which CallLayout checks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "seqtile/tensor.h"

namespace seqtile::autotune {

/// First byte of a tensor, and the byte behind its last. Both are 0 for a tensor without elements, which meets no
/// extent.
struct Extent {
  uintptr_t begin, end;
  bool meets(const Extent& other) const { return (begin < other.end) & (other.begin < end); }
};
inline Extent extent_of(const Tensor& tensor) {
  int64_t before = 0, behind = 0;
  bool is_empty = false;
  for (int d = 0; d < tensor.rank; ++d) {
    const int64_t last = tensor.sizes[d] - 1, reach = last * tensor.strides[d];
    is_empty |= last < 0;
    before += std::min<int64_t>(reach, 0);
    behind += std::max<int64_t>(reach, 0);
  }
  if (is_empty) return {0, 0};
  const auto base = reinterpret_cast<uintptr_t>(tensor.data);
  const int64_t bytes = dtype_bytes(tensor.dtype);
  return {base + static_cast<uintptr_t>(before * bytes), base + static_cast<uintptr_t>((behind + 1) * bytes)};
}

/// True if two elements of the tensor share a byte.
bool overlaps_itself(const Tensor& tensor);
/// True if an element of `a` shares a byte with an element of `b`.
bool overlap(const Tensor& a, const Tensor& b);
/// True if `part` is `whole` or consecutive rows of it. Strides are equal, and so are all sizes but the first.
/// Requires: equal dtypes and ranks.
bool is_rows_of(const Tensor& part, const Tensor& whole);

}  // namespace seqtile::autotune
