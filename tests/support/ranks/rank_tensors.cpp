// tests/support/ranks/rank_tensors.cpp -- see rank_tensors.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/rank_tensors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autotune/call/call_values.h"
#include "autotune/call_sizes.h"

namespace seqtile::testing {
namespace {

constexpr int64_t kGap = 8;  // elements behind a row; 8 elements of 16 bits keep rows aligned

}  // namespace

Tensor rank_tensor(const autotune::Schema& schema, const autotune::ArgSpec& spec, std::span<const int64_t> symbols,
                   void* data) {
  Tensor tensor = autotune::describe_arg(spec, schema, symbols);
  tensor.data = data;
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    if (d == 0 && tensor.rank > 1 && !spec.dense) stride += kGap;
    tensor.strides[d] = std::exchange(stride, stride * tensor.sizes[d]);
  }
  return tensor;
}

size_t bytes_of(const Tensor& tensor) {
  return static_cast<size_t>(tensor.sizes[0] * tensor.strides[0] * dtype_bytes(tensor.dtype));
}

std::vector<std::byte> around(const Tensor& tensor, std::vector<std::byte> bytes) {
  Tensor copy = tensor;
  copy.data = bytes.data();
  autotune::poison(copy);
  return bytes;
}

std::string fault_of(const std::string& name, Tensor tensor, const std::vector<std::byte>& bytes) {
  tensor.data = const_cast<std::byte*>(bytes.data());
  if (std::ranges::any_of(read_elements(tensor), [](double value) { return std::isnan(value); }))
    return name + ": a value was not written";
  return autotune::is_poison(around(tensor, bytes)) ? "" : name + ": a row or a column too many";
}

}  // namespace seqtile::testing
