// bench/operands.cpp -- allocates operands, fills them and counts the copies of a rotation.
// SPDX-License-Identifier: Apache-2.0
#include "bench/operands.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "autotune/call/call_values.h"
#include "bench/machine.h"
#include "seqtile/error.h"

namespace seqtile::bench {
void Buffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + 4095) / 4096 * 4096;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, std::max<size_t>(rounded, 4096))));
  if (!data_) {
    throw Error(ErrorCode::out_of_resources, "bench: no memory for an operand of " + std::to_string(bytes) +
                                                 " bytes; select smaller cases with --filter");
  }
  std::memset(data_.get(), 0, rounded);
}

int64_t rotation_bytes() {
  static const int64_t bytes = std::min(4 * last_level_cache_bytes(), available_bytes() / 8);  // the same for all cases
  return bytes;
}

int num_copies(int64_t bytes_per_copy) {
  return static_cast<int>(std::max<int64_t>(2, rotation_bytes() / std::max<int64_t>(bytes_per_copy, 1) + 1));
}

Operand::Operand(DType dtype, const std::vector<int64_t>& sizes) {
  tensor_ = make_tensor(nullptr, dtype, sizes);
  buffer_ = Buffer(tensor_.num_elements() * dtype_bytes(dtype));
  tensor_.data = buffer_.data();
}

void Operand::fill(uint64_t seed, double scale) { autotune::fill_repeating(tensor_, scale, 7919 * seed); }

void Operand::poison() { autotune::poison(tensor_); }

}  // namespace seqtile::bench
