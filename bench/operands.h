// bench/operands.h -- aligned memory with reproducible values, in several copies that exceed the caches.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "seqtile/tensor.h"

namespace seqtile::bench {

/// Page-aligned memory, touched once. It asks for no huge pages, as a server's allocator does not.
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

/// The least total size of the copies that a case rotates through: 4 times the last-level cache, or an eighth of
/// available_bytes() if that is less.
int64_t rotation_bytes();
/// The number of copies that a case rotates through, each with operands of `bytes_per_copy`. At least 2.
int num_copies(int64_t bytes_per_copy);

/// A dense tensor, filled with normal values times a scale, or with poison.
class Operand {
 public:
  Operand(DType dtype, const std::vector<int64_t>& sizes);
  void fill(uint64_t seed, double scale);
  void poison();
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(tensor_.data);
  }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  Tensor tensor_;
};

}  // namespace seqtile::bench
