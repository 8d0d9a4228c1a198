// kernels/seqpar/patterns/matmul_backward_kernels.cpp -- both kernels: kinds of programs, in the order of the grid.
// SPDX-License-Identifier: Apache-2.0
//
// Trailing: those that push dz; tiles of du, own rows first, then as the rows of peers come; tiles of dw, which need
// all rows, when most have come. Leading: those that push x; tiles of dx of the peers' rows, which are sent; tiles of
// dw, which need the rows of x that have come meanwhile; the own tiles of dx, to which what peers have sent meanwhile
// is added; interleaved, the own rows of dx are computed with the others, and sums follow behind. The last program
// awaits the rest.
#include <array>

#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/allgather_linear.h"
#include "kernels/seqpar/patterns/gathered_wgrad.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

namespace {

WgradOperands wgrad_of(const Tensors<Var>& t) { return {t.cut, t.whole, t.before, t.dw}; }

/// Own rows of the sums over ranks of the products of this rank's weights.
ReduceBody dx_body(KernelBuilder& b, const Shape& s, const linear_op::Tile& tile, const Tensors<Var>& t) {
  ReduceBody body;
  body.partial = [&](Var first, Var end, Var row, Var column_block) {
    Var column = column_block * tile.block_n;
    std::vector<Var> sums;
    for (size_t i = 0; i < s.n.size(); ++i) {
      linear_op::Operands v;
      v.x = rows_of(b, t.whole[i], first, end);
      v.w = {t.w[i]};
      sums = linear_op::multiply(b, s.dgrad(i), tile, v, row, column, std::move(sums));
    }
    return ReduceBody::Tile{column, sums};
  };
  body.result = [&](Var, Var, Var, Var, const std::vector<Var>& sums) { return to_storage(b, sums[0], s.dtype); };
  body.outputs = [&](Var, Var end) { return std::vector{b.slice(t.dgrad, {0, 0}, {end, s.k})}; };
  return body;
}

void build_trailing(KernelBuilder& b, const Shape& s, const Schedule& schedule, const Tensors<Var>& t,
                    const ExchangeShape& exchange) {
  const Linear dgrad = s.dgrad();
  linear_op::Operands v;
  v.x = t.cut;
  v.w = t.w;
  v.y = {t.dgrad};
  const ChannelViews channel = declare_channel(b);
  const TransferSchedule& transfer = schedule.gather.transfer;
  Exchange ex(b, protocol_of_gather(transfer.way), exchange, channel, b.size(t.dgrad, 0));
  GatheredProduct du{b, ex, dgrad, schedule.dgrad, schedule.gather, v, ex.length()};
  GatheredWgrad dw{b, ex, s.gradients(), schedule.wgrad, transfer.chunk_rows, true, wgrad_of(t)};
  const std::array kinds{
      ProgramKind{"push", transfer.push_programs, [&](Var i) { du.push(i); }},
      ProgramKind{"use", du.num_tiles(), [&](Var i) { du.compute(i); }},
      ProgramKind{"use", num_wgrad_tiles(s.gradients(), schedule.wgrad), [&](Var i) { dw.compute(i); }},
      ProgramKind{"", 1, [&](Var) { ex.last_role(); }},
  };
  run_program(b, ex, b.program_id(0), kinds);
  ex.leave({t.dgrad, t.dw[0]});
}

void build_leading(KernelBuilder& b, const Shape& s, const Schedule& schedule, const Tensors<Var>& t,
                   const ExchangeShape& exchange) {
  const ChannelViews channel = declare_channel(b);
  const TransferSchedule& transfer = schedule.gather.transfer;
  Exchange ex(b, gather_beside_reduce_scatter_protocol(), exchange, channel, b.size(t.whole[0], 0));
  const ReduceBody body = dx_body(b, s, schedule.dgrad, t);
  const PartialShape partials = s.partials(schedule.dgrad);
  Reduction sums(b, ex, partials, schedule.sums, ReduceForm::scatter, body, 1);
  GatheredWgrad dw{b, ex, s.gradients(), schedule.wgrad, transfer.chunk_rows, false, wgrad_of(t)};
  const auto push = [&](Var i) {
    push_rows(b, ex, ex.world_size() - 1, i, transfer,
              [&](Var) { return std::vector{Part{rows_of(b, t.cut, 0, ex.num_rows(ex.rank()))}}; });
  };
  const auto finish = [&] {
    sums.finish();
    ex.last_role();
  };
  const std::array kinds{
      ProgramKind{"push", transfer.push_programs, [&](Var i) { push(i); }},
      ProgramKind{"produce", sums.num_partials(), [&](Var i) { sums.produce(i); }},
      ProgramKind{"use", num_wgrad_tiles(s.gradients(), schedule.wgrad), [&](Var i) { dw.compute(i); }},
      ProgramKind{"sum", sums.num_sums(), [&](Var i) { sums.sum(i); }},
      ProgramKind{"", 1, [&](Var) { finish(); }},
  };
  run_program(b, ex, b.program_id(0), kinds);
  std::vector<Var> outputs = sums.outputs();
  outputs.insert(outputs.end(), t.dw.begin(), t.dw.end());
  ex.leave(outputs);
}

}  // namespace

void build(KernelBuilder& b, const Shape& s, const Schedule& schedule, const Tensors<Var>& t,
           const ExchangeShape& exchange) {
  s.is_trailing ? build_trailing(b, s, schedule, t, exchange) : build_leading(b, s, schedule, t, exchange);
}

autotune::SizeExpr num_programs(const Shape& s, const Schedule& schedule) {
  const TransferSchedule& transfer = schedule.gather.transfer;
  autotune::SizeExpr programs;
  if (s.is_trailing) {
    programs = gather_programs(s.dgrad(), schedule.dgrad, schedule.gather, s.ranks.size());
  } else {
    programs = reduce_programs(s.partials(schedule.dgrad), schedule.sums, ReduceForm::scatter, s.ranks.size());
    programs.more += transfer.push_programs;
  }
  programs.more += num_wgrad_tiles(s.gradients(), schedule.wgrad);
  return programs;
}

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
