// kernels/seqpar/operations/matmul_backward_reference.cpp -- both operations in plain double loops, over what peers
// have preset.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/linear/linear_tile.h"
#include "kernels/op/tensor_values.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/operations/matmul_backward.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

using autotune::Problem;
using autotune::Workload;
using linear_op::numbered;

namespace {

using Rows = std::vector<std::vector<double>>;

const Tensor& tensor_of(const Problem& p, const std::string& name) {
  const auto found = std::ranges::find(p.schema->args, name, &autotune::ArgSpec::name);
  return p.tensors[static_cast<size_t>(found - p.schema->args.begin())];
}

Rows all_rows(const Tensor& tensor) {
  Rows rows;
  for (int64_t row = 0; row < tensor.sizes[0]; ++row) rows.push_back(read_row(tensor, row));
  return rows;
}

/// The rows of all ranks.
Rows gathered(const Problem& p, const Tensor& own) {
  const ExchangeShape exchange = matmul_backward_exchange(*p.workload);
  Rows rows;
  for (int64_t row = 0; row < p.symbols[0]; ++row) rows.push_back(gathered_row(p, exchange, own, row));
  return rows;
}

/// sum += x w
void add_product(std::vector<double>& sum, const std::vector<double>& x, const Rows& w) {
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t column = 0; column < sum.size(); ++column) sum[column] += x[i] * w[i][column];
}

/// Those of `rows` that the gradient has, of dy^T x.
std::vector<double> wgrad(const Problem& p, std::span<const int64_t> rows, const Rows& dy, const Rows& x, int weight) {
  const Shape s(*p.workload);
  std::vector<double> result;
  for (const int64_t row : rows) {
    if (row >= s.n[static_cast<size_t>(weight)]) break;
    std::vector<double> sums(static_cast<size_t>(s.k), 0.0);
    if (s.accumulate) sums = read_row(tensor_of(p, numbered("before", weight)), row);
    for (size_t token = 0; token < x.size(); ++token)
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += dy[token][static_cast<size_t>(row)] * x[token][i];
    result.insert(result.end(), sums.begin(), sums.end());
  }
  return result;
}

void trailing(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Rows dz = gathered(p, tensor_of(p, "dz")), w = all_rows(tensor_of(p, "w"));
  std::vector<double> du;
  for (const int64_t row : rows) {
    if (row >= p.symbols[0]) break;
    std::vector<double> sum(static_cast<size_t>(Shape(*p.workload).k), 0.0);
    add_product(sum, dz[static_cast<size_t>(row)], w);
    du.insert(du.end(), sum.begin(), sum.end());
  }
  outputs = {du, wgrad(p, rows, dz, all_rows(tensor_of(p, "u")), 0)};
}

/// Own row `row` of dx.
std::vector<double> sum_over_ranks(const Problem& p, int64_t row, const std::vector<Rows>& dy,
                                   const std::vector<Rows>& w) {
  const ExchangeShape exchange = matmul_backward_exchange(*p.workload);
  const int rank = longest_rank(*p.workload);
  const int64_t first = first_row(rank, p.symbols[0], world_size_of(*p.workload));
  std::vector<double> sum(static_cast<size_t>(Shape(*p.workload).k), 0.0);
  for (int source = 0; source < rank; ++source) {
    const std::vector<double> partial = staged_row(p, exchange, 1, source, row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
  }
  for (size_t i = 0; i < w.size(); ++i) add_product(sum, dy[i][static_cast<size_t>(first + row)], w[i]);
  return sum;
}

void leading(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Rows x = gathered(p, tensor_of(p, "x"));
  std::vector<Rows> dy, w;
  for (int i = 0; i < static_cast<int>(Shape(*p.workload).n.size()); ++i) {
    dy.push_back(all_rows(tensor_of(p, numbered("dy", i))));
    w.push_back(all_rows(tensor_of(p, numbered("w", i))));
  }
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    if (row >= own_rows(*p.workload, p.symbols[0])) break;
    const std::vector<double> sum = sum_over_ranks(p, row, dy, w);
    outputs[0].insert(outputs[0].end(), sum.begin(), sum.end());
  }
  for (size_t i = 0; i < w.size(); ++i) outputs.push_back(wgrad(p, rows, dy[i], x, static_cast<int>(i)));
}

}  // namespace

namespace {

/// What peers have sent of x gets smaller with the number of rows that are summed up.
void scale_staged_rows(const Problem& p, const ExchangeShape& exchange, double scale) {
  for (int64_t row = 0; row < p.symbols[0]; ++row) {
    const RowPlace place = place_of_row(row, p.symbols[0], exchange.world_size);
    std::vector<double> values = staged_row(p, exchange, 0, place.rank, place.row);
    for (double& value : values) value *= scale;
    write_staged_row(p, exchange, 0, place.rank, place.row, values);
  }
}

}  // namespace

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  const Shape s(*p.workload);
  const ExchangeShape exchange = matmul_backward_exchange(*p.workload);
  const std::string& name = p.schema->args[arg].name;
  // Weights, which are the same at all lengths, and gradients give sums of order 1.
  const double of_rows = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(p.symbols[0], 1)));
  const double of_columns = 1 / std::sqrt(static_cast<double>(s.depth()));
  if (fill_channel_arg(p, arg, exchange, longest_rank(*p.workload), seed)) {
    if (name == "staging" && !s.is_trailing) scale_staged_rows(p, exchange, of_rows);
    return true;
  }
  const double scale = name == "u" || name == "x" ? of_rows : name.starts_with("w") ? of_columns : 1;
  fill_normal(p.tensors[arg], 0, scale, seed);
  return true;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  Shape(*p.workload).is_trailing ? trailing(p, rows, outputs) : leading(p, rows, outputs);
}

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
