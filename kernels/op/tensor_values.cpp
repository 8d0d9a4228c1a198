// kernels/op/tensor_values.cpp -- see seqtile/kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/kernel.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "seqtile/error.h"

namespace seqtile::kernels {
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

/// Calls visit(offset) for every element of dimensions axis.., in row-major order.
template <class Visit>
void for_each_offset(const Tensor& tensor, int axis, int64_t base, const Visit& visit) {
  if (axis == tensor.rank) return visit(base);
  for (int64_t i = 0; i < tensor.sizes[axis]; ++i)
    for_each_offset(tensor, axis + 1, base + i * tensor.strides[axis], visit);
}

bool is_dense(const Tensor& tensor, int axis) {
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= axis; --d) {
    if (tensor.strides[d] != stride) return false;
    stride *= tensor.sizes[d];
  }
  return true;
}

template <class T, class Convert>
void convert(const Tensor& tensor, int64_t offset, std::vector<double>& values, const Convert& to_double) {
  const T* from = static_cast<const T*>(tensor.data) + offset;
  for (size_t e = 0; e < values.size(); ++e) values[e] = to_double(from[e]);
}

/// Dense elements of the formats that large operands have, without a switch on each. False for another format.
bool read_dense(const Tensor& tensor, int axis, int64_t offset, std::vector<double>& values) {
  const bool is_f32 = tensor.dtype == DType::f32;
  if (!is_f32 && tensor.dtype != DType::bf16) return false;
  int64_t count = 1;
  for (int d = axis; d < tensor.rank; ++d) count *= tensor.sizes[d];
  values.resize(static_cast<size_t>(count));
  if (is_f32) convert<float>(tensor, offset, values, [](float value) { return static_cast<double>(value); });
  else
    convert<uint16_t>(tensor, offset, values,
                      [](uint16_t bits) { return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)); });
  return true;
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

std::vector<double> read_row(const Tensor& tensor, int64_t i) {
  const int axis = tensor.rank > 1 ? 1 : 0;
  std::vector<double> row;
  if (is_dense(tensor, axis) && read_dense(tensor, axis, axis ? i * tensor.strides[0] : 0, row)) return row;
  row.reserve(static_cast<size_t>(tensor.num_elements() / (axis && tensor.sizes[0] ? tensor.sizes[0] : 1)));
  for_each_offset(tensor, axis, axis ? i * tensor.strides[0] : 0,
                  [&](int64_t offset) { row.push_back(read_element(tensor, offset)); });
  return row;
}

int64_t read_index(const Tensor& tensor, int64_t i) {
  return static_cast<int64_t>(read_element(tensor, i * tensor.strides[0]));
}

void fill_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed) {
  Random random(seed);
  for_each_offset(tensor, 0, 0,
                  [&](int64_t offset) { write_element(tensor, offset, mean + deviation * random.normal()); });
}

void fill_uniform_int(const Tensor& tensor, int64_t lo, int64_t hi, uint64_t seed) {
  Random random(seed);
  const uint64_t span = static_cast<uint64_t>(hi - lo) + 1;
  for_each_offset(tensor, 0, 0, [&](int64_t offset) {
    write_element(tensor, offset, static_cast<double>(lo + static_cast<int64_t>(random.bits() % span)));
  });
}

}  // namespace seqtile::kernels
