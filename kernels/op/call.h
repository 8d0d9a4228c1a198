// kernels/op/call.h -- the tensors, length and scalars of one call, in schema order, without allocation.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "jit/device/tensor.h"

namespace seqtile::kernels {

/// The result of pack() for TypedHandle. Absent tensors take no place: the handle compares the count with its schema.
class Call {
 public:
  static constexpr int kMaxTensors = 20;

  int64_t length = 0;  ///< the bucketed dimension

  explicit Call(int64_t length) : length(length) {}
  void add(const Tensor& tensor) { tensors_[count_++] = tensor; }
  std::span<const Tensor> tensors() const { return {tensors_.data(), static_cast<size_t>(count_)}; }
  std::span<const int64_t> scalars() const { return {}; }

 private:
  std::array<Tensor, kMaxTensors> tensors_;
  int count_ = 0;
};

}  // namespace seqtile::kernels
