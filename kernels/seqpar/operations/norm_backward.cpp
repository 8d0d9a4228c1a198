// kernels/seqpar/operations/norm_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those of rms_norm_backward, of which the last one to end sends the rank's sum to every rank, this
// one too; one that adds up what has come; one that awaits the rest.
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <array>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "kernels/norm/rms_norm_grid.h"
#include "kernels/seqpar/exchange/program_kinds.h"
#include "kernels/seqpar/exchange/rank_op.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using rms_norm_backward_op::Workspaces;

namespace {

class Builder {
 public:
  Builder(KernelBuilder& b, const SequenceParallelRmsNormBackward& op, const Config& c, const Target& target,
          int64_t identity)
      : b_(b),
        norm_(op.norm),
        config_(c),
        target_(target),
        world_size_(op.ranks.size()),
        v_(views_of(norm_, b)),
        length_(b.size(b.view("sequence", DType::i8, {kDynamic}), 0)),
        channel_(declare_channel(b, [&] { workspaces_ = Workspaces(b, c); })),
        ex_(b, op.protocol(c), exchange(op, identity), channel_.block, channel_.counters, channel_.op_id, length_) {}

  void build() {
    Var rows = ex_.num_rows(ex_.rank());
    for (Var* view : {&v_.dy, &v_.x, &v_.residual, &v_.dx})
      if (view->value()) *view = b_.slice(*view, {0, 0}, {rows, norm_.n});
    const auto give = [&](Var dweight) { send(dweight); };
    const std::array kinds{
        ProgramKind{config_.get_int("programs"),
                    [&](Var) {
                      ex_.role("push", [&] {
                        rms_norm_backward_op::build_rows(b_, norm_, config_, target_, v_, workspaces_, give);
                      });
                    }},
        ProgramKind{1, [&](Var i) { ex_.role("use", [&] { sum_up(i); }); }},
        ProgramKind{1, [&](Var) { ex_.last_role(); }},
    };
    run_program(b_, b_.program_id(0), kinds);
    ex_.leave({v_.dx, v_.dweight});
  }

 private:
  static ExchangeShape exchange(const SequenceParallelRmsNormBackward& op, int64_t identity) {
    ExchangeShape shape = exchange_of(op);
    shape.identity = identity;
    return shape;
  }
  Var one() { return b_.constant(DType::i64, int64_t{1}); }

  void send(Var dweight) {
    b_.when(ex_.is_aborted(), nullptr, [&] {
      b_.for_each(0, world_size_, 1, [&](Var i) {
        Var peer = ex_.peer(i);
        b_.store(ex_.target(0, peer, one()), {0, 0}, b_.expand(dweight, 0));
        ex_.publish(0, peer, b_.constant(DType::i64, int64_t{0}));
      });
    });
  }

  void sum_up(Var id) {
    constexpr int64_t kColumns = 1024;
    Var zero = b_.constant(DType::i64, int64_t{0});
    Var good =
        b_.for_loop(0, world_size_, 1, {b_.compare(Compare::eq, zero, zero)}, [&](Var i, std::vector<Var> before) {
          return b_.if_then(
              before[0], [&] { return std::vector{ex_.await(0, ex_.peer(i), zero, one(), id)}; },
              [&] { return before; });
        })[0];
    b_.when(good, [&] {
      b_.for_each(0, norm_.n, kColumns, [&](Var column) {
        Var sum = b_.for_loop(0, world_size_, 1, {b_.full({1, kColumns}, 0.0)}, [&](Var rank, std::vector<Var> before) {
          return std::vector{before[0] + b_.load(ex_.source(0, rank, one()), {0, column}, {1, kColumns})};
        })[0];
        b_.store(v_.dweight, {0, column}, sum);
      });
    });
  }

  KernelBuilder& b_;
  const RmsNormBackward norm_;
  const Config& config_;
  const Target& target_;
  const int world_size_;
  RmsNormBackward::Tensors<Var> v_;
  Var length_;
  Workspaces workspaces_;
  ChannelViews channel_;
  Exchange ex_;
};

struct NormKernel {
  SequenceParallelRmsNormBackward op;

  std::vector<Config> configs(int threads, int64_t length, const Target& target) const {
    return rms_norm_grid::config_space(op.norm, threads, rows_of_rank(length), target).enumerate();
  }
  Config default_config(int threads, int64_t length, const Target& target) const {
    return rms_norm_grid::default_config(op.norm, threads, rows_of_rank(length), target);
  }
  double predict_us(const Config& c, int threads, int64_t length, const Target& target) const {
    return rms_norm_grid::predict_us(op.norm, c, threads, rows_of_rank(length), target);
  }
  void build(KernelBuilder& b, const Config& c, const Target& target, int64_t identity) const {
    Builder(b, op, c, target, identity).build();
  }
  autotune::SizeExpr programs(const Config& c) const { return {c.get_int("programs") + 2}; }
  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    std::vector<autotune::Workspace> workspaces = rms_norm_grid::workspaces(op.norm.n, c);
    workspaces.push_back({"counters", DType::i32, {1}});
    return workspaces;
  }
  autotune::Cost cost(std::span<const int64_t> symbols) const {
    return cost_of(op.norm, num_rows(op.layout, op.ranks.longest(), symbols[0], op.ranks.size()));
  }
  autotune::OpDef::Tolerance tolerance(int64_t length) const { return op.norm.tolerance(std::max<int64_t>(length, 1)); }

  void reference(const Problem& p, const RmsNormBackward::Args& t, std::span<const int64_t> rows,
                 RmsNormBackward::Tensors<std::vector<double>>& out) const {
    const std::vector<double> weight = read_row(t.weight, 0);
    const auto gradients = [&](int64_t row) {
      return rms_norm_backward_op::reference_row(op.norm, read_row(t.dy, row), read_row(t.x, row), weight);
    };
    for (const int64_t row : rows) {
      if (row < t.dy.sizes[0]) {
        std::vector<double> dx = gradients(row).dx;
        const std::vector<double> beside = op.norm.residual ? read_row(t.residual, row) : std::vector<double>();
        for (size_t i = 0; i < beside.size(); ++i) dx[i] += beside[i];
        out.dx.insert(out.dx.end(), dx.begin(), dx.end());
      }
      if (row == 0) out.dweight = sum_of_terms(p, t.dy.sizes[0], gradients, weight.size());
    }
  }

 private:
  int64_t rows_of_rank(int64_t length) const {
    return std::max<int64_t>(1, most_rows(op.layout, length, op.ranks.size()));
  }

  /// dweight: the terms of own rows, then what peers have sent.
  std::vector<double> sum_of_terms(const Problem& p, int64_t own_rows, const auto& gradients, size_t n) const {
    std::vector<double> sum(n);
    const auto add = [&](const std::vector<double>& terms) {
      for (size_t i = 0; i < n; ++i) sum[i] += terms[i];
    };
    for (int64_t row = 0; row < own_rows; ++row) add(gradients(row).terms);
    for (int source = 0; source < op.ranks.longest(); ++source) add(staged_row(p, exchange_of(op), 0, source, 0));
    return sum;
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
