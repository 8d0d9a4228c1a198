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
#include "kernels/op/row_kernel.h"
#include "kernels/seqpar/exchange/program_kinds.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/allgather_linear.h"
#include "kernels/seqpar/patterns/gathered_wgrad.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

using linear_op::numbered;

namespace {

/// A parameter for each weight, of its size.
std::vector<Var> declare_each(KernelBuilder& b, const Shape& s, const char* name, DType dtype) {
  std::vector<Var> views;
  for (size_t i = 0; i < s.n.size(); ++i)
    views.push_back(b.view(numbered(name, static_cast<int>(i)), dtype, {s.n[i], s.k}));
  return views;
}

Exchange exchange_in(KernelBuilder& b, const Shape& s, const TransferSchedule& transfer, int64_t identity,
                     const ChannelViews& c, Var length) {
  const ExchangeShape shape = with_transfer(exchange_of(s, identity, transfer.chunk_rows), transfer.way);
  const Protocol& protocol = s.is_trailing ? protocol_of_gather(transfer.way) : gather_beside_reduce_scatter_protocol();
  return {b, protocol, shape, c.block, c.counters, c.number, length};
}

/// Own rows of the sums over ranks of the products of this rank's weights.
ReduceBody dx_body(KernelBuilder& b, const Shape& s, const linear_op::Tile& t, const std::vector<Var>& dy,
                   const std::vector<Var>& w, Var dx) {
  ReduceBody body;
  body.partial = [&b, &s, &t, &dy, &w](Var first, Var end, Var row, Var column_block) {
    Var column = column_block * t.block_n;
    std::vector<Var> sums;
    for (size_t i = 0; i < w.size(); ++i) {
      linear_op::Operands v;
      v.x = b.slice(dy[i], {first, 0}, {end, s.n[i]});
      v.w = {w[i]};
      sums = linear_op::multiply(b, s.dgrad(i), t, v, row, column, std::move(sums));
    }
    return ReduceBody::Tile{column, sums};
  };
  body.result = [&b, &s](Var, Var, Var, Var, const std::vector<Var>& sums) { return to_storage(b, sums[0], s.dtype); };
  body.outputs = [&b, &s, dx](Var, Var end) { return std::vector{b.slice(dx, {0, 0}, {end, s.k})}; };
  return body;
}

}  // namespace

void build_trailing(KernelBuilder& b, const Shape& s, const Schedule& schedule, int64_t identity) {
  const Linear dgrad = s.dgrad();
  linear_op::Operands v;
  WgradOperands g;
  v.x = g.cut = b.view("dz", s.dtype, {kDynamic, s.n[0]});
  v.w = declare_each(b, s, "w", s.dtype);
  g.whole = {b.view("u", s.dtype, {kDynamic, s.k})};
  if (s.accumulate) g.before = declare_each(b, s, "before", s.dw_dtype);
  v.y = {b.view("du", s.dtype, {kDynamic, s.k})};
  g.dw = declare_each(b, s, "dw", s.dw_dtype);
  const ChannelViews channel = declare_channel(b);
  Var length = b.size(v.y[0], 0);
  const TransferSchedule& transfer = schedule.gather.transfer;
  Exchange ex = exchange_in(b, s, transfer, identity, channel, length);
  GatheredProduct du(b, ex, dgrad, schedule.dgrad, schedule.gather, s.world_size, v, length);
  GatheredWgrad dw(b, ex, s.gradients(), schedule.wgrad, transfer.chunk_rows, s.world_size, true, g);
  const std::array kinds{
      ProgramKind{transfer.push_programs, [&](Var i) { ex.role("push", [&] { du.push(i); }); }},
      ProgramKind{du.num_tiles(), [&](Var i) { ex.role("use", [&] { du.compute(i); }); }},
      ProgramKind{num_wgrad_tiles(s.gradients(), schedule.wgrad),
                  [&](Var i) { ex.role("use", [&] { dw.compute(i); }); }},
      ProgramKind{1, [&](Var) { ex.last_role(); }},
  };
  run_program(b, b.program_id(0), kinds);
  ex.leave({v.y[0], g.dw[0]});
}

void build_leading(KernelBuilder& b, const Shape& s, const Schedule& schedule, int64_t identity) {
  std::vector<Var> dy;
  for (size_t i = 0; i < s.n.size(); ++i)
    dy.push_back(b.view(numbered("dy", static_cast<int>(i)), s.dtype, {kDynamic, s.n[i]}));
  const std::vector<Var> w = declare_each(b, s, "w", s.dtype);
  WgradOperands g{b.view("x", s.dtype, {kDynamic, s.k}), dy, {}, {}};
  if (s.accumulate) g.before = declare_each(b, s, "before", s.dw_dtype);
  Var dx = b.view("dx", s.dtype, {kDynamic, s.k});
  g.dw = declare_each(b, s, "dw", s.dw_dtype);
  const ChannelViews channel = declare_channel(b);
  Var length = b.size(dy[0], 0);
  const TransferSchedule& transfer = schedule.gather.transfer;
  Exchange ex = exchange_in(b, s, transfer, identity, channel, length);
  const ReduceBody body = dx_body(b, s, schedule.dgrad, dy, w, dx);
  const PartialShape partials = partials_of(s, schedule.dgrad);
  Reduction sums(b, ex, partials, schedule.sums, ReduceForm::scatter, s.world_size, channel.counters, length, body, 1);
  GatheredWgrad dw(b, ex, s.gradients(), schedule.wgrad, transfer.chunk_rows, s.world_size, false, g);
  const auto push = [&](Var i) {
    push_rows(b, ex, s.world_size - 1, i, transfer, [&](Var) {
      return std::vector{Part{b.slice(g.cut, {0, 0}, {ex.num_rows(ex.rank()), s.k})}};
    });
  };
  const auto finish = [&] {
    sums.finish();
    ex.last_role();
  };
  const std::array kinds{
      ProgramKind{transfer.push_programs, [&](Var i) { ex.role("push", [&] { push(i); }); }},
      ProgramKind{sums.num_partials(), [&](Var i) { ex.role("produce", [&] { sums.produce(i); }); }},
      ProgramKind{num_wgrad_tiles(s.gradients(), schedule.wgrad),
                  [&](Var i) { ex.role("use", [&] { dw.compute(i); }); }},
      ProgramKind{sums.num_sums(), [&](Var i) { ex.role("sum", [&] { sums.sum(i); }); }},
      ProgramKind{1, [&](Var) { finish(); }},
  };
  run_program(b, b.program_id(0), kinds);
  std::vector<Var> outputs = sums.outputs();
  outputs.insert(outputs.end(), g.dw.begin(), g.dw.end());
  ex.leave(outputs);
}

autotune::SizeExpr num_programs(const Shape& s, const Schedule& schedule) {
  const TransferSchedule& transfer = schedule.gather.transfer;
  autotune::SizeExpr programs;
  if (s.is_trailing) {
    programs = gather_programs(s.dgrad(), schedule.dgrad, schedule.gather, s.world_size);
  } else {
    const PartialShape partials = partials_of(s, schedule.dgrad);
    programs = reduce_programs(partials, schedule.sums, ReduceForm::scatter, s.world_size);
    programs.more += transfer.push_programs;
  }
  programs.more += num_wgrad_tiles(s.gradients(), schedule.wgrad);
  return programs;
}

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
