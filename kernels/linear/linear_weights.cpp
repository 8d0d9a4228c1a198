// kernels/linear/linear_weights.cpp -- packing of linear's weights, and linear in plain double loops.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <string>

#include "jit/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_shape.h"
#include "kernels/op/tensor_values.h"

namespace seqtile::kernels {

int64_t default_panel(const Target& target) { return 2 * target.lanes_f32(); }

int64_t packed_linear_elements(int64_t n, int64_t k, int64_t panel) { return (n + panel - 1) / panel * panel * k; }

void pack_linear_weight(const Tensor& weight, const Tensor& packed) {
  const int64_t n = weight.sizes[0], k = weight.sizes[1], panel = packed.sizes[2];
  const bool fits = weight.rank == 2 && packed.rank == 3 && panel > 0 && packed.sizes[0] == (n + panel - 1) / panel &&
                    packed.sizes[1] == k && packed.dtype == weight.dtype && packed.strides[2] == 1 &&
                    packed.strides[1] == panel && packed.strides[0] == k * panel;
  if (!fits)
    throw Error(ErrorCode::invalid_argument, "pack_linear_weight: a weight [" + std::to_string(n) + ", " +
                                                 std::to_string(k) +
                                                 "] needs a dense [ceil(n / panel), k, panel] tensor " +
                                                 "of the same dtype; see packed_linear_elements()");
  const int64_t bytes = dtype_bytes(weight.dtype);
  const auto* from = static_cast<const std::byte*>(weight.data);
  auto* to = static_cast<std::byte*>(packed.data);
  std::memset(to, 0, static_cast<size_t>(packed_linear_elements(n, k, panel) * bytes));
  for (int64_t column = 0; column < n; ++column)
    for (int64_t kk = 0; kk < k; ++kk)
      std::memcpy(to + ((column / panel * k + kk) * panel + column % panel) * bytes,
                  from + (column * weight.strides[0] + kk * weight.strides[1]) * bytes, static_cast<size_t>(bytes));
}

namespace linear_op {
namespace {

/// Row `column` of a weight in either layout.
std::vector<double> weight_row(const Shape& s, const Tensor& w, int64_t column) {
  if (!s.packed && !s.transposed) return read_row(w, column);
  std::vector<double> row;
  for (int64_t kk = 0; kk < s.k && s.transposed; ++kk) row.push_back(read_element(w, kk * w.strides[0] + column));
  if (s.transposed) return row;
  for (int64_t kk = 0; kk < s.k; ++kk)
    row.push_back(read_element(w, column / s.panel * w.strides[0] + kk * w.strides[1] + column % s.panel));
  return row;
}

/// In eight sums side by side, which a processor adds in parallel. Verification waits for this more than for anything.
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums)
    for (size_t s = 0; s < kSums; ++s) sums[s] += a[i + s] * b[i + s];
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// x w^T for weight `i`, [rows, columns].
std::vector<double> product(const Shape& s, const autotune::Problem& p, const std::vector<std::vector<double>>& x,
                            int i) {
  const Tensor& w = p.tensors[1 + i];
  const int64_t n = s.weight_columns(i);
  std::vector<double> result(x.size() * static_cast<size_t>(n));
  for (int64_t column = 0; column < n; ++column) {
    const std::vector<double> weight = weight_row(s, w, column);
    for (size_t r = 0; r < x.size(); ++r)
      result[r * static_cast<size_t>(n) + static_cast<size_t>(column)] = dot(x[r], weight);
  }
  return result;
}

}  // namespace

std::vector<std::vector<double>> reference_products(const Shape& s, const autotune::Problem& p,
                                                    const std::vector<std::vector<double>>& x) {
  std::vector<std::vector<double>> products;
  for (int i = 0; i < s.num_weights(); ++i) products.push_back(product(s, p, x, i));
  return products;
}

void reference_epilogue(const Shape& s, const autotune::Problem& p, std::span<const int64_t> rows,
                        std::vector<std::vector<double>> products, std::vector<std::vector<double>>& outputs) {
  for (int i = 0; s.bias && i < s.num_weights(); ++i) {
    const std::vector<double> bias = read_row(p.tensors[1 + s.num_weights() + i], 0);
    for (size_t e = 0; e < products[i].size(); ++e) products[i][e] += bias[e % bias.size()];
  }
  outputs.assign(products.begin(), products.begin() + static_cast<std::ptrdiff_t>(s.n.size()));
  for (std::vector<double>& output : outputs)
    for (double& value : output) value = activate(s.activation, value);
  for (size_t e = 0; s.gated && e < products[1].size(); ++e) outputs[0][e] *= products[1][e];
  for (std::vector<double>& output : outputs)
    for (double& value : output) {
      value *= s.scale;
      if (s.soft_cap != 0) value = s.soft_cap * std::tanh(value / s.soft_cap);
    }
  if (!s.residual) return;
  const Tensor& residual = p.tensors[1 + s.num_weights() * (s.bias ? 2 : 1)];
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::vector<double> added = read_row(residual, rows[r]);
    for (size_t e = 0; e < added.size(); ++e) outputs[0][r * added.size() + e] += added[e];
  }
}

void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Shape s(*p.workload);
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) x.push_back(read_row(p.tensors[0], row));
  reference_epilogue(s, p, rows, reference_products(s, p, x), outputs);
}

}  // namespace linear_op
}  // namespace seqtile::kernels
