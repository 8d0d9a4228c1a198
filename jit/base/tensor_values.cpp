// jit/base/tensor_values.cpp -- see seqtile/tensor.h.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "jit/base/assert.h"
#include "jit/base/tensor_runs.h"

namespace seqtile {
namespace {

template <class T>
T get(const Tensor& tensor, int64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(tensor.data) + offset * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put(const Tensor& tensor, int64_t offset, T value) {
  std::memcpy(static_cast<std::byte*>(tensor.data) + offset * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Sets each element, in row-major order, to what `next` gives.
template <class Next>
void write_elements(const Tensor& tensor, const Next& next) {
  for_each_run(tensor, [&](int64_t offset, int64_t count) {
    for (int64_t e = 0; e < count; ++e) write_element(tensor, offset + e, next());
  });
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In (0, 1].
  double uniform() { return static_cast<double>((bits() >> 11) + 1) * 0x1p-53; }
  /// Box and Muller 1958: two values at a time.
  double normal() {
    if (has_spare_) return has_spare_ = false, spare_;
    const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace

double read_element(const Tensor& tensor, int64_t offset) {
  switch (tensor.dtype) {
    case DType::i1: return get<uint8_t>(tensor, offset) != 0;
    case DType::i8: return get<int8_t>(tensor, offset);
    case DType::i16: return get<int16_t>(tensor, offset);
    case DType::i32: return get<int32_t>(tensor, offset);
    case DType::i64: return static_cast<double>(get<int64_t>(tensor, offset));
    case DType::f16: return f16_to_f32(get<uint16_t>(tensor, offset));
    case DType::bf16: return bf16_to_f32(get<uint16_t>(tensor, offset));
    case DType::f32: return get<float>(tensor, offset);
    case DType::f64: return get<double>(tensor, offset);
  }
  SEQTILE_ASSERT(false && "dtype");
  return 0;
}

void write_element(const Tensor& tensor, int64_t offset, double value) {
  switch (tensor.dtype) {
    case DType::i1: return put<uint8_t>(tensor, offset, value != 0);
    case DType::i8: return put(tensor, offset, static_cast<int8_t>(value));
    case DType::i16: return put(tensor, offset, static_cast<int16_t>(value));
    case DType::i32: return put(tensor, offset, static_cast<int32_t>(value));
    case DType::i64: return put(tensor, offset, static_cast<int64_t>(value));
    case DType::f16: return put(tensor, offset, f32_to_f16(static_cast<float>(value)));
    case DType::bf16: return put(tensor, offset, f32_to_bf16(static_cast<float>(value)));
    case DType::f32: return put(tensor, offset, static_cast<float>(value));
    case DType::f64: return put(tensor, offset, value);
  }
}

/// The formats of large operands are read without a switch on each element.
std::vector<double> read_elements(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.num_elements()));
  double* to = values.data();
  for_each_run(tensor, [&](int64_t offset, int64_t count) {
    const void* from = bytes_at(tensor, offset, count).data();
    if (tensor.dtype == DType::f32) {
      for (int64_t e = 0; e < count; ++e) to[e] = static_cast<const float*>(from)[e];
    } else if (tensor.dtype == DType::bf16) {
      for (int64_t e = 0; e < count; ++e)
        to[e] = std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(from)[e]} << 16);
    } else {
      for (int64_t e = 0; e < count; ++e) to[e] = read_element(tensor, offset + e);
    }
    to += count;
  });
  return values;
}

std::vector<double> read_row(const Tensor& tensor, int64_t i) {
  return read_elements(tensor.rank > 1 ? row_of(tensor, i) : tensor);
}

int64_t read_index(const Tensor& tensor, int64_t i) {
  return static_cast<int64_t>(read_element(tensor, i * tensor.strides[0]));
}

void fill_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed) {
  Random random(seed);
  write_elements(tensor, [&] { return mean + deviation * random.normal(); });
}

void fill_uniform_int(const Tensor& tensor, int64_t lo, int64_t hi, uint64_t seed) {
  Random random(seed);
  const uint64_t span = static_cast<uint64_t>(hi - lo) + 1;
  write_elements(tensor, [&] { return static_cast<double>(lo + static_cast<int64_t>(random.bits() % span)); });
}

}  // namespace seqtile
