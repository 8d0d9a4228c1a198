// jit/base/tensor_runs.h -- the elements of a strided tensor, run by run of adjacent ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>

#include "seqtile/tensor.h"

namespace seqtile {

/// Calls visit(offset, count) for each longest run of elements that lie one after the other, in row-major order.
/// `offset` is in elements from the base.
template <class Visit>
void for_each_run(const Tensor& tensor, const Visit& visit) {
  int outer = tensor.rank;  // the dimensions that do not belong to a run
  int64_t count = 1, runs = 1;
  while (outer > 0 && (tensor.strides[outer - 1] == count || tensor.sizes[outer - 1] == 1))
    count *= tensor.sizes[--outer];
  for (int d = 0; d < outer; ++d) runs *= tensor.sizes[d];
  for (int64_t run = 0; run < runs && count > 0; ++run) {
    int64_t offset = 0, rest = run;
    for (int d = outer - 1; d >= 0; --d) {
      offset += rest % tensor.sizes[d] * tensor.strides[d];
      rest /= tensor.sizes[d];
    }
    visit(offset, count);
  }
}

/// The bytes of `count` elements from element `offset` on.
inline std::span<std::byte> bytes_at(const Tensor& tensor, int64_t offset, int64_t count) {
  const int64_t size = dtype_bytes(tensor.dtype);
  return {static_cast<std::byte*>(tensor.data) + offset * size, static_cast<size_t>(count * size)};
}

/// As for_each_run(), with the bytes of each run.
template <class Visit>
void for_each_run_bytes(const Tensor& tensor, const Visit& visit) {
  for_each_run(tensor, [&](int64_t offset, int64_t count) { visit(bytes_at(tensor, offset, count)); });
}

/// The elements below index `i` of dimension 0, as a tensor without that dimension.
inline Tensor row_of(const Tensor& tensor, int64_t i) {
  Tensor row{bytes_at(tensor, i * tensor.strides[0], 0).data(), tensor.dtype, tensor.rank - 1, {}, {}};
  for (int d = 0; d < row.rank; ++d) {
    row.sizes[d] = tensor.sizes[d + 1];
    row.strides[d] = tensor.strides[d + 1];
  }
  return row;
}

}  // namespace seqtile
