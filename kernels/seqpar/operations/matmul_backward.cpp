// kernels/seqpar/operations/matmul_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <algorithm>

#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/rank_op.h"
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

namespace {

constexpr std::array<std::string_view, 2> kGradientNames = {"operand", "f32"};

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

template <class T>
matmul_backward_op::Tensors<T> by_weight(const Trailing& op, const Trailing::Tensors<T>& t) {
  return {t.dz, {t.u}, {t.w}, op.accumulate ? std::vector<T>{t.before} : std::vector<T>{}, {t.dw}, t.du};
}

template <class T>
matmul_backward_op::Tensors<T> by_weight(const Leading& op, const Leading::Tensors<T>& t) {
  const auto there = [count = shape_of(op).n.size()](std::vector<T> of_weights) {
    of_weights.resize(count);
    return of_weights;
  };
  return {t.x,
          there({t.dy, t.dy2, t.dy3}),
          there({t.w, t.w2, t.w3}),
          op.accumulate ? there({t.before, t.before2, t.before3}) : std::vector<T>{},
          there({t.dw, t.dw2, t.dw3}),
          t.dx};
}

template <class Op>
struct BackwardKernel {
  static constexpr bool kIsTrailing = std::is_same_v<Op, Trailing>;
  Op op;

  std::vector<Config> configs(int threads, int64_t length, const Target& target) const {
    return matmul_backward_op::configs(shape_of(op), threads, length, target);
  }

  double predict_us(const Config& config, int threads, int64_t length, const Target& target) const {
    return matmul_backward_op::predict_us(shape_of(op), config, threads, length, target);
  }

  void build(KernelBuilder& b, const Config& c, const Target&, int64_t identity) const {
    matmul_backward_op::build(b, shape_of(op), Schedule::from(c), by_weight(op, views_of(op, b)), identity);
  }

  autotune::SizeExpr programs(const Config& c) const { return num_programs(shape_of(op), Schedule::from(c)); }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    if (kIsTrailing) return {{"counters", DType::i32, {1}}};
    return {{"counters", DType::i32, num_counters(ReduceSchedule::from(c), ReduceForm::scatter, op.ranks.size())}};
  }

  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    return matmul_backward_op::fill(p, shape_of(op), arg, seed);
  }

  void reference(const Problem& p, const typename Op::template Tensors<Tensor>& t, std::span<const int64_t> rows,
                 typename Op::template Tensors<std::vector<double>>& out) const {
    std::vector<std::vector<double>> results = matmul_backward_op::reference(p, shape_of(op), by_weight(op, t), rows);
    std::vector<std::vector<double>*> outputs;
    if constexpr (kIsTrailing) outputs = {&out.du, &out.dw};
    else outputs = {&out.dx, &out.dw, &out.dw2, &out.dw3};
    for (size_t i = 0; i < results.size(); ++i) *outputs[i] = std::move(results[i]);
  }

  /// Both products read the rows of all ranks; a rank's share of the sums over ranks is written.
  autotune::Cost cost(std::span<const int64_t> symbols) const {
    const Shape s = shape_of(op);
    const double rows = static_cast<double>(symbols[0]), own = static_cast<double>(symbols[1]);
    const double n = static_cast<double>(s.depth()), k = static_cast<double>(s.k);
    const double bytes = static_cast<double>(dtype_bytes(s.dtype));
    const double dw_bytes = n * k * static_cast<double>(dtype_bytes(s.dw_dtype));
    return {4 * rows * n * k, (rows * (n + k) + n * k) * bytes + (s.accumulate ? dw_bytes : 0),
            (s.is_trailing ? rows : own) * k * bytes + dw_bytes};
  }

  autotune::OpDef::Tolerance tolerance(int64_t length) const {
    const Shape s = shape_of(op);
    const autotune::OpDef::Tolerance over_rows = kernels::tolerance(s.dw_dtype, length);
    auto result = kernels::tolerance(s.dtype, s.depth() * (s.is_trailing ? 1 : s.ranks.world_size));
    if (!s.is_trailing && s.transport != DType::f32)  // each partial sum is rounded: see fused_linear.cpp
      result.absolute += storage_epsilon(s.transport) * s.ranks.size();
    return {std::max(result.absolute, over_rows.absolute), std::max(result.relative, over_rows.relative)};
  }
};

}  // namespace

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

ExchangeShape exchange_of(const Shape& s, int64_t identity, int64_t chunk_rows) {
  using Rows = PhaseShape::Rows;
  ExchangeShape shape{s.ranks.size(), identity, {}};
  shape.phases.push_back({Rows::of_source, s.dtype, s.is_trailing ? s.n[0] : s.k, chunk_rows});
  if (!s.is_trailing) shape.phases.push_back({Rows::of_owner, s.transport, s.k, chunk_rows});
  return shape;
}

PartialShape partials_of(const Shape& s, const linear_op::Tile& dgrad) {
  return {dgrad.block_m, linear_op::column_blocks(s.dgrad(), dgrad.block_n),
          s.k,           1,
          s.transport,   s.dtype,
          false,         fills_registers(dgrad, 1)};
}

}  // namespace matmul_backward_op

void Trailing::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  v.flag("accumulate", accumulate);
  v.choice("gradient", f32_gradient, kGradientNames);
}

ExchangeShape Trailing::exchange(int64_t chunk_rows) const { return exchange_of(shape_of(*this), 0, chunk_rows); }

const Protocol& Trailing::protocol(const Config& config) { return protocol_of_gather(transfer_of(config)); }

void Leading::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  v.integer("n2", n2, 0, kMaxFeatures);
  v.integer("n3", n3, 0, kMaxFeatures);
  if (n3 && !n2) v.refuse("n3", "needs n2: weights are numbered without gaps");
  v.storage_type("transport", transport);
  v.flag("accumulate", accumulate);
  v.choice("gradient", f32_gradient, kGradientNames);
}

ExchangeShape Leading::exchange(int64_t chunk_rows) const { return exchange_of(shape_of(*this), 0, chunk_rows); }

const Protocol& Leading::protocol(const Config&) { return gather_beside_reduce_scatter_protocol(); }

autotune::OpDef sequence_parallel_trailing_matmul_backward() {
  return rank_op<BackwardKernel<Trailing>>("gather(dz) w and gather(dz)^T u, in one launch of each rank", 5);
}

autotune::OpDef sequence_parallel_leading_matmul_backward() {
  return rank_op<BackwardKernel<Leading>>(
      "own rows of the sum over ranks of dy w, and dy^T gather(x), in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
