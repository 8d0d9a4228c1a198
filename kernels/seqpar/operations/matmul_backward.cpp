// kernels/seqpar/operations/matmul_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using matmul_backward_op::Schedule;
using matmul_backward_op::Shape;
using Trailing = SequenceParallelTrailingMatmulBackward;
using Leading = SequenceParallelLeadingMatmulBackward;

namespace matmul_backward_op {

int64_t Shape::depth() const {
  int64_t sum = 0;
  for (const int64_t rows : n) sum += rows;
  return sum;
}

std::vector<LinearWgrad> Shape::gradients() const {
  std::vector<LinearWgrad> gradients;
  for (const int64_t rows : n) gradients.push_back(wgrad(rows));
  return gradients;
}

ExchangeShape Shape::exchange(int64_t chunk_rows) const {
  using Rows = PhaseShape::Rows;
  ExchangeShape shape{ranks.size(), 0, {{Rows::of_source, dtype, is_trailing ? n[0] : k, chunk_rows}}};
  if (!is_trailing) shape.phases.push_back({Rows::of_owner, transport, k, chunk_rows});
  return shape;
}

PartialShape Shape::partials(const linear_op::Tile& tile) const {
  return {.block_rows = tile.block_m,
          .column_blocks = linear_op::column_blocks(dgrad(), tile.block_n),
          .columns = k,
          .transport = transport,
          .result = dtype,
          .fills_registers = fills_registers(tile, 1)};
}

/// Both products read the rows of all ranks; a rank's share of the sums over ranks is written.
autotune::Cost Shape::cost(std::span<const int64_t> symbols) const {
  const double rows = static_cast<double>(symbols[0]), own = static_cast<double>(symbols[1]);
  const double columns = static_cast<double>(depth()), inner = static_cast<double>(k);
  const double bytes = static_cast<double>(dtype_bytes(dtype));
  const double dw_bytes = columns * inner * static_cast<double>(dtype_bytes(dw_dtype));
  return {4 * rows * columns * inner,
          (rows * (columns + inner) + columns * inner) * bytes + (accumulate ? dw_bytes : 0),
          (is_trailing ? rows : own) * inner * bytes + dw_bytes};
}

autotune::OpDef::Tolerance Shape::tolerance(int64_t length) const {
  const autotune::OpDef::Tolerance over_rows = kernels::tolerance(dw_dtype, length);
  auto result = kernels::tolerance(dtype, depth() * (is_trailing ? 1 : ranks.world_size));
  if (!is_trailing && transport != DType::f32)  // each partial sum is rounded: see fused_linear.cpp
    result.absolute += storage_epsilon(transport) * ranks.size();
  return {std::max(result.absolute, over_rows.absolute), std::max(result.relative, over_rows.relative)};
}

}  // namespace matmul_backward_op

namespace {

template <class Op>
Shape shape_of(const Op& op) {
  Shape s{.operation = op.kName,
          .is_trailing = std::is_same_v<Op, Trailing>,
          .ranks = op.ranks,
          .n = {op.n},
          .k = op.k,
          .accumulate = op.accumulate,
          .dtype = op.dtype,
          .dw_dtype = op.dw_dtype(),
          .transport = op.dtype};
  if constexpr (std::is_same_v<Op, Leading>) {
    s.transport = op.transport;
    for (const int64_t more : {op.n2, op.n3})
      if (more) s.n.push_back(more);
  }
  return s;
}

template <class Op, class T>
matmul_backward_op::Tensors<T> by_weight(const Op& op, const typename Op::template Tensors<T>& t) {
  matmul_backward_op::Tensors<T> tensors;
  op.tensors(tensors, t);
  return tensors;
}

// The reference: plain double loops over own rows and over what stands in the staging for those of the peers.

using Operands = matmul_backward_op::Tensors<Tensor>;
using Rows = std::vector<std::vector<double>>;

ExchangeShape smallest_exchange(const Shape& s) { return s.exchange(kSmallestChunk); }

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

/// Rows `rows` of the gradient dy^T x of one weight, as far as it has them.
std::vector<double> wgrad(const Shape& s, const Operands& t, std::span<const int64_t> rows, const Rows& dy,
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

/// Adds dy w, [rows, k], of one weight.
void add_dgrad(std::vector<double>& sums, const Shape& s, const Operands& t, const Rows& dy, size_t weight) {
  const auto products = linear_op::reference_products(s.dgrad(weight), {.x = {}, .w = t.w[weight], .y = {}}, dy);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += products[0][i];
}

Rows trailing(const Problem& p, const Shape& s, const Operands& t, std::span<const int64_t> rows) {
  const Rows dz = gathered(p, s, t.cut);
  Rows chosen;
  for (const int64_t row : rows)
    if (row < p.symbols[0]) chosen.push_back(dz[static_cast<size_t>(row)]);
  std::vector<double> du(chosen.size() * static_cast<size_t>(s.k));
  add_dgrad(du, s, t, chosen, 0);
  return {du, wgrad(s, t, rows, dz, all_rows(t.whole[0]), 0)};
}

Rows leading(const Problem& p, const Shape& s, const Operands& t, std::span<const int64_t> rows) {
  const int rank = s.ranks.longest();
  const int64_t first = s.ranks.first_row(rank, p.symbols[0]);
  std::vector<double> dx;
  std::vector<Rows> dy(s.n.size());
  for (const int64_t row : rows) {
    if (first + row >= p.symbols[0]) break;
    std::vector<double> sums(static_cast<size_t>(s.k));
    add_staged_rows(sums, p, smallest_exchange(s), 1, s.ranks, row);
    dx.insert(dx.end(), sums.begin(), sums.end());
    for (size_t i = 0; i < dy.size(); ++i) dy[i].push_back(read_row(t.whole[i], first + row));
  }
  for (size_t i = 0; i < dy.size(); ++i) add_dgrad(dx, s, t, dy[i], i);
  const Rows x = gathered(p, s, t.cut);
  Rows outputs{dx};
  for (size_t i = 0; i < dy.size(); ++i) outputs.push_back(wgrad(s, t, rows, all_rows(t.whole[i]), x, i));
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

template <class Op>
struct BackwardKernel {
  Op op;

  Shape plans() const { return shape_of(op); }

  void build(const RankBuild<Op>& given) const {
    const auto views = by_weight<Op, Var>(op, views_of(op, given.b));
    matmul_backward_op::build(given.b, shape_of(op), Schedule::from(given.config), views, given.shape);
  }

  autotune::SizeExpr programs(const Config& c) const { return num_programs(shape_of(op), Schedule::from(c)); }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    if (std::is_same_v<Op, Trailing>) return {{"counters", DType::i32, {1}}};
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), ReduceForm::scatter, op.ranks.size())}};
  }

  /// Operands by which the sums of both gradients are of order 1: weights, which are the same at all lengths,
  /// gradients.
  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    const Shape s = shape_of(op);
    const ExchangeShape exchange = smallest_exchange(s);
    const std::string& name = p.schema->args[arg].name;
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

  /// Rows `rows` of du or dx, then of the gradient of each weight.
  Rows reference(const Problem& p, const typename Op::Args& t, std::span<const int64_t> rows) const {
    const Operands operands = by_weight<Op, Tensor>(op, t);
    return std::is_same_v<Op, Trailing> ? trailing(p, shape_of(op), operands, rows)
                                        : leading(p, shape_of(op), operands, rows);
  }
};

}  // namespace

void Trailing::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  linear_op::visit_gradient(v, accumulate, f32_gradient);
}

ExchangeShape Trailing::exchange(int64_t chunk_rows) const { return shape_of(*this).exchange(chunk_rows); }

const Protocol& Trailing::protocol(const Config& config) { return protocol_of_gather(transfer_of(config)); }

void Leading::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  v.integer("n2", n2, 0, kMaxFeatures);
  v.integer("n3", n3, 0, kMaxFeatures);
  if (n3 && !n2) v.refuse("n3", "needs n2: weights are numbered without gaps");
  v.storage_type("transport", transport);
  linear_op::visit_gradient(v, accumulate, f32_gradient);
}

ExchangeShape Leading::exchange(int64_t chunk_rows) const { return shape_of(*this).exchange(chunk_rows); }

const Protocol& Leading::protocol(const Config&) { return gather_beside_reduce_scatter_protocol(); }

autotune::OpDef sequence_parallel_trailing_matmul_backward() {
  return rank_op<BackwardKernel<Trailing>>("gather(dz) w and gather(dz)^T u, in one launch of each rank", 5);
}

autotune::OpDef sequence_parallel_leading_matmul_backward() {
  return rank_op<BackwardKernel<Leading>>(
      "own rows of the sum over ranks of dy w, and dy^T gather(x), in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
