// bench/operands.cpp -- allocates operands, fills them and counts the copies of a rotation.
// SPDX-License-Identifier: Apache-2.0
#include "bench/operands.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "bench/machine.h"
#include "seqtile/error.h"

namespace seqtile::bench {
namespace {

void store_value(std::byte* target, DType dtype, float value) {
  if (dtype == DType::f32) {
    std::memcpy(target, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(target, &bits, sizeof bits);
}

uint64_t next_random(uint64_t& state) {  // xorshift64*
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1Dull;
}

}  // namespace

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

Operand::Operand(DType dtype, std::vector<int64_t> sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  buffer_ = Buffer(count * dtype_bytes(dtype));
  tensor_ = Tensor{buffer_.data(), dtype, static_cast<int>(sizes.size()), {}, {}};
  int64_t stride = 1;
  for (int d = tensor_.rank - 1; d >= 0; --d) {
    tensor_.sizes[d] = sizes[d];
    tensor_.strides[d] = stride;
    stride *= sizes[d];
  }
}

void Operand::fill(uint64_t seed, double scale) {
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  const int64_t step = dtype_bytes(tensor_.dtype), count = tensor_.num_elements();
  std::byte* target = buffer_.data();
  for (int64_t i = 0; i < count; ++i, target += step) {
    const double unit = static_cast<double>(next_random(state) >> 11) * 0x1.0p-53;
    store_value(target, tensor_.dtype, static_cast<float>(scale * (2 * unit - 1)));
  }
}

void Operand::fill_nan() {
  const int64_t step = dtype_bytes(tensor_.dtype), count = tensor_.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    store_value(buffer_.data() + i * step, tensor_.dtype, std::numeric_limits<float>::quiet_NaN());
  }
}

double Operand::value(int64_t index) const {
  switch (tensor_.dtype) {
    case DType::f32: return as<float>()[index];
    case DType::bf16: return bf16_to_f32(as<uint16_t>()[index]);
    default: return f16_to_f32(as<uint16_t>()[index]);
  }
}

}  // namespace seqtile::bench
