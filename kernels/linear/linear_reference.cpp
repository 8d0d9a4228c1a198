// kernels/linear/linear_reference.cpp -- see linear_reference.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear_reference.h"

#include <cmath>

#include "kernels/act/activation.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::linear_op {

namespace {

/// Row `column` of a weight in either layout.
std::vector<double> weight_row(const Linear& s, const Tensor& w, int64_t column) {
  if (!s.is_packed() && !s.is_transposed()) return read_row(w, column);
  const int64_t step = w.strides[s.is_packed() ? 1 : 0];
  const int64_t first = s.is_packed() ? column / s.panel * w.strides[0] + column % s.panel : column;
  std::vector<double> row;
  for (int64_t kk = 0; kk < s.k; ++kk) row.push_back(read_element(w, first + kk * step));
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

/// x w^T, [rows, n].
std::vector<double> product(const Linear& s, const Tensor& w, int64_t n, const std::vector<std::vector<double>>& x) {
  std::vector<double> result(x.size() * static_cast<size_t>(n));
  for (int64_t column = 0; column < n; ++column) {
    const std::vector<double> weight = weight_row(s, w, column);
    for (size_t r = 0; r < x.size(); ++r)
      result[r * static_cast<size_t>(n) + static_cast<size_t>(column)] = dot(x[r], weight);
  }
  return result;
}

}  // namespace

std::vector<std::vector<double>> reference_products(const Linear& s, const Linear::Tensors<Tensor>& t,
                                                    const std::vector<std::vector<double>>& x) {
  std::vector<std::vector<double>> products;
  for (int i = 0; i < s.num_weights(); ++i) products.push_back(product(s, t.weights()[i], s.weight_columns(i), x));
  return products;
}

Linear::Tensors<std::vector<double>> reference_epilogue(const Linear& s, const Linear::Tensors<Tensor>& t,
                                                        std::span<const int64_t> rows,
                                                        std::vector<std::vector<double>> products) {
  for (int i = 0; s.bias && i < s.num_weights(); ++i) {
    const std::vector<double> bias = read_row(t.biases()[i], 0);
    for (size_t e = 0; e < products[i].size(); ++e) products[i][e] += bias[e % bias.size()];
  }
  for (int i = 0; i < s.num_outputs(); ++i)
    for (double& value : products[i]) value = activate(s.activation, value);
  for (size_t e = 0; s.gated && e < products[1].size(); ++e) products[0][e] *= products[1][e];
  for (int i = 0; i < s.num_outputs(); ++i)
    for (double& value : products[i]) {
      value *= s.scale;
      if (s.soft_cap != 0) value = s.soft_cap * std::tanh(value / s.soft_cap);
    }
  for (size_t r = 0; s.residual && r < rows.size(); ++r) {
    const std::vector<double> added = read_row(t.residual, rows[r]);
    for (size_t e = 0; e < added.size(); ++e) products[0][r * added.size() + e] += added[e];
  }
  Linear::Tensors<std::vector<double>> out;
  std::vector<double>* const outputs[] = {&out.y, &out.y2, &out.y3};
  for (int i = 0; i < s.num_outputs(); ++i) *outputs[i] = std::move(products[i]);
  return out;
}

}  // namespace seqtile::kernels::linear_op
