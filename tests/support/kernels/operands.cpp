// tests/support/kernels/operands.cpp -- see operands.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/operands.h"

#include <cmath>
#include <random>

#include "tests/support/references/interpreter.h"

namespace seqtile::testing {

Operands::Operands(const std::vector<Param>& params, const std::vector<int>& alias) {
  std::mt19937 random(7);
  for (const Param& p : params) {
    Tensor tensor = make_tensor(nullptr, p.dtype, p.sizes);
    const int64_t count = tensor.num_elements() + p.behind * p.sizes.back();
    memory.emplace_back(static_cast<size_t>(count * dtype_bytes(p.dtype)) + 128);
    const auto address = reinterpret_cast<uintptr_t>(memory.back().data());
    tensor.data = memory.back().data() + (64 - address % 64);  // views may state any alignment up to a cache line
    std::uniform_real_distribution<double> uniform(p.lo, p.hi);
    for (int64_t i = 0; i < count; ++i) {
      const double value = p.output ? 77 : uniform(random);
      write_element(tensor, i, p.dtype == DType::i1 ? value > 0 : is_integer(p.dtype) ? std::floor(value) : value);
    }
    tensors.push_back(tensor);
  }
  for (size_t i = 0; i < alias.size(); ++i)
    if (alias[i] >= 0) tensors[i].data = tensors[static_cast<size_t>(alias[i])].data;
}

std::vector<uint64_t> Operands::slots(const std::vector<int64_t>& scalars) const {
  std::vector<uint64_t> slots;
  for (const Tensor& t : tensors) {
    slots.push_back(reinterpret_cast<uint64_t>(t.data));
    for (int d = 0; d < t.rank; ++d) slots.push_back(static_cast<uint64_t>(t.sizes[d]));
    for (int d = 0; d < t.rank; ++d) slots.push_back(static_cast<uint64_t>(t.strides[d]));
  }
  for (const int64_t scalar : scalars) slots.push_back(static_cast<uint64_t>(scalar));
  return slots;
}

void interpret_on(const ir::Function& function, Grid grid, const Operands& operands,
                  const std::vector<int64_t>& scalars) {
  std::vector<ParamValue> values;
  for (const Tensor& tensor : operands.tensors) values.emplace_back(tensor);
  for (const int64_t scalar : scalars) values.emplace_back(scalar);
  interpret(function, grid, values);
}

std::string first_difference(const ir::Function& function, const std::vector<Param>& params, const Operands& want,
                             const Operands& got, double tolerance) {
  for (size_t p = 0; p < params.size(); ++p)
    for (int64_t i = 0; i < got.tensors[p].num_elements() + params[p].behind * params[p].sizes.back(); ++i) {
      const double w = read_element(want.tensors[p], i), g = read_element(got.tensors[p], i);
      if ((std::isnan(w) && std::isnan(g)) || w == g || std::abs(g - w) <= tolerance * (1 + std::abs(w))) continue;
      return function.param_names()[p] + "[" + std::to_string(i) + "] is " + std::to_string(g) + ", not " +
             std::to_string(w);
    }
  return "";
}

}  // namespace seqtile::testing
