// kernels/seqpar/operations/norm_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those of rms_norm_backward, of which the last one to end sends the rank's sum to every rank, this
// one too; one that adds up what has come; one that awaits the rest.
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <array>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using rms_norm_backward_op::build_rows;
using rms_norm_backward_op::Workspaces;

namespace {

class Builder : RankBuild<SequenceParallelRmsNormBackward> {
 public:
  explicit Builder(const RankBuild& given) : RankBuild(given) {}

  void build() {
    Var rows = ex_.num_rows(ex_.rank());
    for (Var* view : {&v_.dy, &v_.x, &v_.residual, &v_.dx})
      if (view->value()) *view = b.slice(*view, {0, 0}, {rows, norm_.n});
    const auto give = [&](Var dweight) { send(dweight); };
    const std::array kinds{
        ProgramKind{"push", tile_.programs, [&](Var) { build_rows(b, norm_, tile_, target, v_, workspaces_, give); }},
        ProgramKind{"use", 1, [&](Var i) { sum_up(i); }},
        ProgramKind{"", 1, [&](Var) { ex_.last_role(); }},
    };
    run_program(b, ex_, b.program_id(0), kinds);
    ex_.leave({v_.dx, v_.dweight});
  }

 private:
  Var one() { return b.constant(DType::i64, int64_t{1}); }

  void send(Var dweight) {
    b.when(ex_.is_aborted(), nullptr, [&] {
      b.for_each(0, world_size_, 1, [&](Var i) {
        Var peer = ex_.peer(i);
        b.store(ex_.target(0, peer, one()), {0, 0}, b.expand(dweight, 0));
        ex_.publish(0, peer, b.constant(DType::i64, int64_t{0}));
      });
    });
  }

  void sum_up(Var id) {
    constexpr int64_t kColumns = 1024;
    Var zero = b.constant(DType::i64, int64_t{0});
    Var good = in_turn(b, 0, world_size_, b.compare(Compare::eq, zero, zero),
                       [&](Var i) { return ex_.await(0, ex_.peer(i), zero, one(), id); });
    b.when(good, [&] {
      b.for_each(0, norm_.n, kColumns, [&](Var column) {
        Var sum = b.for_loop(0, world_size_, 1, {b.full({1, kColumns}, 0.0)}, [&](Var rank, std::vector<Var> before) {
          return std::vector{before[0] + b.load(ex_.source(0, rank, one()), {0, column}, {1, kColumns})};
        })[0];
        b.store(v_.dweight, {0, column}, sum);
      });
    });
  }

  const RmsNormBackward& norm_ = op.norm;
  const RmsNormBackward::Tile tile_ = tile_of(norm_, config);
  const int world_size_ = op.ranks.size();
  // The members from here on declare the kernel's parameters, in their order.
  RmsNormBackward::Tensors<Var> v_ = views_of(norm_, b);
  Var length_ = b.size(b.view("sequence", DType::i8, {kDynamic}), 0);
  Workspaces workspaces_;
  Exchange ex_{b, op.protocol(config), shape, declare_channel(b, [&] { workspaces_ = Workspaces(b, tile_); }), length_};
};

struct NormKernel {
  SequenceParallelRmsNormBackward op;

  Setting of_rank(const Setting& s) const { return {op.ranks.rows_of_rank(s.length, op.layout), s.threads, s.target}; }
  std::vector<Config> configs(const Setting& s) const {
    std::vector<Config> configs;
    for (const auto& tile : op.norm.tiles(of_rank(s))) configs.push_back(config_of(op.norm, tile));
    return configs;
  }
  Config default_config(const Setting& s) const { return config_of(op.norm, default_tile(op.norm, of_rank(s))); }
  double predict_us(const Config& c, const Setting& s) const {
    return op.norm.predict_us(tile_of(op.norm, c), of_rank(s));
  }
  void build(const RankBuild<SequenceParallelRmsNormBackward>& given) const { Builder(given).build(); }
  autotune::SizeExpr programs(const Config& c) const { return {c.get_int("programs") + 2}; }
  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    std::vector<autotune::Workspace> workspaces = op.norm.workspaces(tile_of(op.norm, c));
    workspaces.push_back({"counters", DType::i32, {1}});
    return workspaces;
  }
  autotune::Cost cost(std::span<const int64_t> symbols) const {
    return cost_of(op.norm, num_rows(op.layout, op.ranks.longest(), symbols[0], op.ranks.size()));
  }
  autotune::OpDef::Tolerance tolerance(int64_t length) const { return op.norm.tolerance(std::max<int64_t>(length, 1)); }

  void reference(const Problem& p, const RmsNormBackward::Args& t, std::span<const int64_t> rows,
                 RmsNormBackward::Tensors<std::vector<double>>& out) const {
    const auto end_of_own = std::ranges::lower_bound(rows, t.dy.sizes[0]);
    op.norm.reference(t, std::span(rows.begin(), end_of_own), out);
    if (rows.empty() || rows.front() != 0) return;
    out.dweight.resize(static_cast<size_t>(op.norm.n));  // a rank without rows has none of its own
    add_staged_rows(out.dweight, p, exchange_of(op), 0, op.ranks, 0);
  }
};

}  // namespace

void SequenceParallelRmsNormBackward::fields(FieldVisitor& v) {
  ranks.fields(v);
  norm.fields(v);
  v.choice("layout", layout, kRowLayoutNames);
}
ExchangeShape SequenceParallelRmsNormBackward::exchange(int64_t) const {
  const PhaseShape row{PhaseShape::Rows::fixed, DType::f32, norm.n, 1, 1};
  return {ranks.size(), 0, {row}, 0, layout};
}
const Protocol& SequenceParallelRmsNormBackward::protocol(const Config&) { return gather_protocol(); }

autotune::OpDef sequence_parallel_rms_norm_backward() {
  return rank_op<NormKernel>(
      "gradients of a root-mean-square norm of own rows, its weight's summed over the ranks in the launch", 4);
}

}  // namespace seqtile::kernels::seqpar
