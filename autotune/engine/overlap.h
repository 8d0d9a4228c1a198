// autotune/engine/overlap.h -- whether tensors share memory, exactly, for whatever strides they have.
// SPDX-License-Identifier: Apache-2.0
//
// A tensor is a run of bytes (its innermost dimension, without gaps) at base + sum of index * stride. Two tensors share
// a byte where the difference of two such sums is smaller than a run. Column slices of one buffer, as q and k of a
// packed projection are, lie between each other without sharing a byte: comparing first and last bytes is not enough.
// Tensors here have an innermost stride of 1, as CallLayout asks for.
#pragma once
#include <algorithm>
#include <cstdint>

#include "jit/device/tensor.h"

namespace seqtile::autotune {

/// First byte and the one behind the last; of a tensor without elements both are 0, which meets nothing.
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

/// Whether two elements of the tensor share a byte.
bool overlaps_itself(const Tensor& tensor);
/// Whether an element of one tensor shares a byte with an element of the other.
bool overlap(const Tensor& a, const Tensor& b);
/// Whether `part` is `whole`, or rows of it: same strides, and of dimensions other than the first the same sizes.
/// Requires: equal dtypes and ranks.
bool is_rows_of(const Tensor& part, const Tensor& whole);

}  // namespace seqtile::autotune
