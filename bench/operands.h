// bench/operands.h -- aligned memory with reproducible values, in several copies that defeat the caches.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "jit/device/tensor.h"

namespace seqtile::bench {

/// Memory aligned to a page, as a server's allocator gives it (no huge pages asked for), touched once.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

/// Rotated operands are at least this large in all: 4 times the last-level cache, or an eighth of the memory that this
/// process can get where that is less.
int64_t rotation_bytes();
/// Copies of operands of `bytes_per_copy` that a case rotates through: at least 2.
int num_copies(int64_t bytes_per_copy);

/// A dense tensor of uniform values in [-scale, scale) or, for another use, of NaN.
class Operand {
 public:
  Operand(DType dtype, std::vector<int64_t> sizes);
  void fill(uint64_t seed, double scale);
  void fill_nan();
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(tensor_.data);
  }
  int64_t bytes() const { return buffer_.bytes(); }
  /// Element `index` in memory order as double.
  double value(int64_t index) const;

 private:
  Buffer buffer_;
  Tensor tensor_;
};

}  // namespace seqtile::bench
