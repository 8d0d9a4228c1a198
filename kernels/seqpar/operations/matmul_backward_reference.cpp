// kernels/seqpar/operations/matmul_backward_reference.cpp -- both operations in plain double loops, over what peers
// have preset.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

using autotune::Problem;

namespace {

using Rows = std::vector<std::vector<double>>;

ExchangeShape smallest_exchange(const Shape& s) { return exchange_of(s, 0, kSmallestChunk); }

Rows all_rows(const Tensor& tensor) {
  Rows rows;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row) rows.push_back(read_row(tensor, row));
  return rows;
}

/// The rows of all ranks.
Rows gathered(const Problem& p, const Shape& s, const Tensor& own) {
  Rows rows;
  for (int64_t row = 0; row < p.symbols[0]; ++row)
    rows.push_back(gathered_row(p, s.ranks, smallest_exchange(s), own, row));
  return rows;
}

/// sum += x w
void add_product(std::vector<double>& sum, const std::vector<double>& x, const Rows& w) {
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t column = 0; column < sum.size(); ++column) sum[column] += x[i] * w[i][column];
}

/// Rows `rows` of the gradient dy^T x of one weight, as far as it has them.
std::vector<double> wgrad(const Shape& s, const Tensors<Tensor>& t, std::span<const int64_t> rows, const Rows& dy,
                          const Rows& x, size_t weight) {
  std::vector<double> result;
  for (const int64_t row : rows) {
    if (row >= s.n[weight]) break;
    std::vector<double> sums(static_cast<size_t>(s.k), 0.0);
    if (s.accumulate) sums = read_row(t.before[weight], row);
    for (size_t token = 0; token < x.size(); ++token)
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += dy[token][static_cast<size_t>(row)] * x[token][i];
    result.insert(result.end(), sums.begin(), sums.end());
  }
  return result;
}

Rows trailing(const Problem& p, const Shape& s, const Tensors<Tensor>& t, std::span<const int64_t> rows) {
  const Rows dz = gathered(p, s, t.cut), w = all_rows(t.w[0]);
  std::vector<double> du;
  for (const int64_t row : rows) {
    if (row >= p.symbols[0]) break;
    std::vector<double> sum(static_cast<size_t>(s.k), 0.0);
    add_product(sum, dz[static_cast<size_t>(row)], w);
    du.insert(du.end(), sum.begin(), sum.end());
  }
  return {du, wgrad(s, t, rows, dz, all_rows(t.whole[0]), 0)};
}

/// Own row `row` of dx.
std::vector<double> sum_over_ranks(const Problem& p, const Shape& s, int64_t row, const std::vector<Rows>& dy,
                                   const std::vector<Rows>& w) {
  const int rank = s.ranks.longest();
  const int64_t first = s.ranks.first_row(rank, p.symbols[0]);
  std::vector<double> sum(static_cast<size_t>(s.k), 0.0);
  for (int source = 0; source < rank; ++source) {
    const std::vector<double> partial = staged_row(p, smallest_exchange(s), 1, source, row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
  }
  for (size_t i = 0; i < w.size(); ++i) add_product(sum, dy[i][static_cast<size_t>(first + row)], w[i]);
  return sum;
}

Rows leading(const Problem& p, const Shape& s, const Tensors<Tensor>& t, std::span<const int64_t> rows) {
  const Rows x = gathered(p, s, t.cut);
  std::vector<Rows> dy, w;
  for (const Tensor& tensor : t.whole) dy.push_back(all_rows(tensor));
  for (const Tensor& tensor : t.w) w.push_back(all_rows(tensor));
  Rows outputs(1);
  for (const int64_t row : rows) {
    if (row >= num_rows(RowLayout::contiguous, s.ranks.longest(), p.symbols[0], s.ranks.size())) break;
    const std::vector<double> sum = sum_over_ranks(p, s, row, dy, w);
    outputs[0].insert(outputs[0].end(), sum.begin(), sum.end());
  }
  for (size_t i = 0; i < w.size(); ++i) outputs.push_back(wgrad(s, t, rows, dy[i], x, i));
  return outputs;
}

/// The rows of x that peers have sent get smaller with the number of rows that are summed up.
void scale_staged_rows(const Problem& p, const ExchangeShape& exchange, double scale) {
  for (int64_t row = 0; row < p.symbols[0]; ++row) {
    const RowPlace place = place_of_row(RowLayout::contiguous, row, p.symbols[0], exchange.world_size);
    std::vector<double> values = staged_row(p, exchange, 0, place.rank, place.row);
    for (double& value : values) value *= scale;
    write_staged_row(p, exchange, 0, place.rank, place.row, values);
  }
}

}  // namespace

bool fill(const Problem& p, const Shape& s, size_t arg, uint64_t seed) {
  const ExchangeShape exchange = smallest_exchange(s);
  const std::string& name = p.schema->args[arg].name;
  // Weights, which are the same at all lengths, and gradients give sums of order 1.
  const double of_rows = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(p.symbols[0], 1)));
  const double of_columns = 1 / std::sqrt(static_cast<double>(s.depth()));
  if (fill_channel_arg(p, arg, exchange, s.ranks.longest(), seed)) {
    if (name == "staging" && !s.is_trailing) scale_staged_rows(p, exchange, of_rows);
    return true;
  }
  const double scale = name == "u" || name == "x" ? of_rows : name.starts_with("w") ? of_columns : 1;
  fill_normal(p.tensors[arg], 0, scale, seed);
  return true;
}

std::vector<std::vector<double>> reference(const Problem& p, const Shape& s, const Tensors<Tensor>& t,
                                           std::span<const int64_t> rows) {
  return s.is_trailing ? trailing(p, s, t, rows) : leading(p, s, t, rows);
}

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
