// kernels/seqpar/patterns/linear_reduce.cpp -- see linear_reduce.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/linear_reduce.h"

#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

namespace {

/// y and weight as rms_norm has them, for rows that this program has just stored.
void normalize_rows(KernelBuilder& b, Var y, Var weight, Var normed, Var row, int64_t num_rows, double eps) {
  constexpr int64_t kColumns = 256;
  const int64_t n = weight.type().shape[0];
  const DType dtype = weight.type().dtype;
  const auto values = [&](Var column) { return to_f32(b, b.load(y, {row, column}, {num_rows, kColumns})); };
  Var squares = b.for_loop(0, n, kColumns, {b.full({num_rows}, 0.0)}, [&](Var column, std::vector<Var> sums) {
    Var value = values(column);
    return std::vector{sums[0] + b.sum(value * value, 1)};
  })[0];
  Var scale = b.unary(ir::OpKind::rsqrt, squares * (1.0 / static_cast<double>(n)) + eps);
  b.for_each(0, n, kColumns, [&](Var column) {
    Var gain = to_f32(b, b.load(weight, {column}, {kColumns}));
    Var value = values(column) * across(b, scale, num_rows, kColumns) * down(b, gain, num_rows, kColumns);
    b.store(normed, {row, column}, to_storage(b, value, dtype));
  });
}

}  // namespace

PartialShape partial_products(const Linear& shape, const linear_op::Tile& tile, DType transport,
                              const NormEpilogue& norm) {
  return {tile.block_m,  linear_op::column_blocks(shape, tile.block_n),
          shape.n,       shape.weights_per_loop(),
          transport,     shape.dtype,
          norm.is_there, fills_registers(tile, shape.weights_per_loop())};
}

void build_linear_reduce(KernelBuilder& b, const Linear& s, const linear_op::Tile& t, const ReduceSchedule& schedule,
                         ReduceForm form, DType transport, const ExchangeShape& exchange, const NormEpilogue& norm) {
  const int64_t n = s.n;
  const linear_op::Operands v(s, views_of(s, b));
  Var weight, normed;
  if (norm.is_there) {
    weight = b.view("norm_weight", s.dtype, {n});
    normed = b.view("normed", s.dtype, {kDynamic, n});
  }
  const ChannelViews channel = declare_channel(b);
  Exchange ex(b, protocol_of(form), exchange, channel, b.size(v.x, 0));
  // Of a tensor that has this rank's rows alone, they are the first ones.
  const auto place = [&](Var first) {
    return form == ReduceForm::scatter ? b.constant(DType::i64, int64_t{0}) : first;
  };
  ReduceBody body;
  body.partial = [&](Var first, Var end, Var row, Var column_block) {
    linear_op::Operands of_rows = v;
    of_rows.x = rows_of(b, v.x, first, end);
    Var column = column_block * t.block_n;
    return ReduceBody::Tile{column, linear_op::multiply(b, s, t, of_rows, row, column)};
  };
  body.result = [&](Var first, Var end, Var row, Var column, std::vector<Var> sums) {
    linear_op::Operands of_rows = v;
    if (s.residual) of_rows.residual = rows_of(b, v.residual, place(first), end);
    return linear_op::result_of(b, s, of_rows, row, column, std::move(sums));
  };
  body.outputs = [&](Var first, Var end) {
    std::vector<Var> outputs{rows_of(b, v.y[0], place(first), end)};
    if (norm.is_there) outputs.push_back(rows_of(b, normed, place(first), end));
    return outputs;
  };
  if (norm.is_there)
    body.finish_rows = [&](Var first, Var end, Var row, int64_t num_rows) {
      const std::vector<Var> outputs = body.outputs(first, end);
      normalize_rows(b, outputs[0], weight, outputs[1], row, num_rows, norm.eps);
    };
  build_reduction(b, ex, partial_products(s, t, transport, norm), schedule, form, body);
}

}  // namespace seqtile::kernels::seqpar
