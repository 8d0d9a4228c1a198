// jit/device/tensor.h -- a reference to memory that the caller owns: pointer, dtype, sizes, strides.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>

#include "jit/base/dtype.h"

namespace seqtile {

constexpr int kMaxRank = 4;

/// Strides are in elements. A default-constructed tensor is "absent" (an optional argument that is not given).
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<int64_t, kMaxRank> strides{};

  int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= sizes[i];
    return count;
  }
};

/// A dense row-major tensor over `data`.
inline Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> sizes) {
  Tensor tensor{data, dtype, static_cast<int>(sizes.size()), {}, {}};
  int i = 0;
  for (int64_t size : sizes) tensor.sizes[i++] = size;
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d];
  }
  return tensor;
}

}  // namespace seqtile
