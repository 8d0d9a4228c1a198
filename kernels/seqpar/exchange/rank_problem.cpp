// kernels/seqpar/exchange/rank_problem.cpp -- see rank_problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/rank_problem.h"

#include <algorithm>

#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Problem;

std::vector<double> gathered_row(const Problem& problem, const Ranks& ranks, const ExchangeShape& exchange,
                                 const Tensor& own, int64_t row, int64_t column) {
  const auto [source, local] = place_of_row(exchange.layout, row, problem.symbols[0], ranks.size());
  if (source == ranks.longest()) return read_row(own, local);
  const std::vector<double> staged = staged_row(problem, exchange, 0, source, local);
  return {staged.begin() + column, staged.begin() + column + own.sizes[1]};
}

void add_staged_rows(std::span<double> sum, const Problem& problem, const ExchangeShape& exchange, int phase,
                     const Ranks& ranks, int64_t row) {
  for (int source = 0; source < ranks.longest(); ++source) {
    const std::vector<double> partial = staged_row(problem, exchange, phase, source, row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial[i];
  }
}

namespace {

/// The phases of reduce_shape() for an all-reduce.
enum Phase { partials, sums, one_shot };

void fill_own_rows(const Ranks& ranks, const Tensor& x, uint64_t seed) {
  fill_normal(x, 0, 1, seed);
  for (int64_t row = 0; row < ranks.first_row(ranks.longest(), x.sizes[0]); ++row)
    for (int64_t i = 0; i < x.sizes[1]; ++i) write_element(x, row * x.strides[0] + i, 0);
}

void fill_staging(const Problem& problem, const Ranks& ranks, const ExchangeShape& exchange,
                  const std::function<std::vector<double>(int64_t row)>& idle_row) {
  const int64_t length = problem.symbols[0], first_own = ranks.first_row(ranks.longest(), length);
  for (int64_t row = 0; row < first_own; ++row) {
    const RowPlace place = place_of_row(RowLayout::contiguous, row, length, ranks.size());
    write_staged_row(problem, exchange, sums, place.rank, place.row, idle_row(row));
  }
  const std::vector<double> zeros(static_cast<size_t>(exchange.phases[partials].columns), 0.0);
  for (int64_t row = 0; row < std::min(length, exchange.phases[one_shot].most_rows); ++row)
    for (int source = 0; source < ranks.longest(); ++source)
      write_staged_row(problem, exchange, one_shot, source, row,
                       row < first_own ? zeros : staged_row(problem, exchange, partials, source, row - first_own));
}

}  // namespace

bool fill_all_reduce_arg(const Problem& problem, size_t arg, const Ranks& ranks, const ExchangeShape& exchange,
                         uint64_t seed, const std::function<std::vector<double>(int64_t row)>& idle_row) {
  const std::string& name = problem.schema->args[arg].name;
  if (name == "x") {
    fill_own_rows(ranks, problem.tensors[arg], seed);
    return true;
  }
  if (!fill_channel_arg(problem, arg, exchange, ranks.longest(), seed)) return false;
  if (name == "staging") fill_staging(problem, ranks, exchange, idle_row);
  return true;
}

}  // namespace seqtile::kernels::seqpar
