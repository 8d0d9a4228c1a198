// kernels/seqpar/operations/norm_backward.cpp -- see norm_backward.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those of rms_norm_backward, of which the last one to end sends the rank's sum to every rank, this
// one too; one that adds up what has come; one that awaits the rest.
#include "kernels/seqpar/operations/norm_backward.h"

#include <algorithm>
#include <array>

#include "kernels/norm/rms_norm_backward.h"
#include "kernels/norm/rms_norm_backward_kernel.h"
#include "kernels/norm/rms_norm_grid.h"
#include "kernels/op/typed_op.h"
#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/exchange/program_kinds.h"
#include "kernels/seqpar/rank_call.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;
using rms_norm_backward_op::Workspaces;

namespace {

constexpr const char* kName = "sequence_parallel_rms_norm_backward";
/// What a rank computes before the sum.
RmsNormBackward norm_of(const Workload& w) { return op_of<RmsNormBackward>(w); }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_rank_fields(reader);
  read_fields<RmsNormBackward>(reader);
  reader.choice("layout", {"contiguous", "zigzag"});
  return reader.finish();
}

Schema schema_of(const Workload& w) {
  Schema schema = kernels::schema_of(norm_of(w)).schema;
  for (autotune::ArgSpec& arg : schema.args)
    if (arg.dims[0].symbol == "length") arg.dims[0] = "own_rows";
  add_sequence_arg(schema);
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

int64_t rows_of_rank(const Workload& w, int64_t length) {
  return std::max<int64_t>(1, most_rows(layout_of(w), length, world_size_of(w)));
}

// --- the kernel

class Builder {
 public:
  Builder(KernelBuilder& b, const Workload& w, const Config& c, const Target& target)
      : b_(b),
        norm_(norm_of(w)),
        config_(c),
        target_(target),
        world_size_(world_size_of(w)),
        v_(views_of(norm_, b)),
        length_(b.size(b.view("sequence", DType::i8, {kDynamic}), 0)),
        channel_(declare_channel(b, [&] { workspaces_ = Workspaces(b, c); })),
        ex_(b, gather_protocol(), exchange(w, c), channel_.block, channel_.counters, channel_.number, length_) {}

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
  static ExchangeShape exchange(const Workload& w, const Config& c) {
    ExchangeShape shape = norm_backward_exchange(w);
    shape.identity = identity_of(w, c);
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

// --- the call that is measured and verified: that of the longest rank

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  const Workload& w = *p.workload;
  if (fill_sequence_arg(p, arg)) return true;
  if (fill_channel_arg(p, arg, norm_backward_exchange(w), longest_rank(w), seed)) return true;
  if (p.schema->args[arg].role != ArgRole::weight) return false;
  fill_normal(p.tensors[arg], 1 - norm_of(w).weight_offset, 0.1, seed);
  return true;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const RmsNormBackward norm = norm_of(w);
  const auto t = tensors_of(norm, p.tensors);
  const std::vector<double> weight = read_row(t.weight, 0);
  const auto gradients = [&](int64_t row) {
    return rms_norm_backward_op::reference_row(norm, read_row(t.dy, row), read_row(t.x, row), weight);
  };
  outputs.assign(2, {});
  for (const int64_t row : rows) {
    if (row < t.dy.sizes[0]) {
      std::vector<double> dx = gradients(row).dx;
      const std::vector<double> beside = norm.residual ? read_row(t.residual, row) : std::vector<double>();
      for (size_t i = 0; i < beside.size(); ++i) dx[i] += beside[i];
      outputs[0].insert(outputs[0].end(), dx.begin(), dx.end());
    }
    if (row != 0) continue;
    outputs[1].assign(weight.size(), 0.0);
    const auto add = [&](const std::vector<double>& terms) {
      for (size_t i = 0; i < terms.size(); ++i) outputs[1][i] += terms[i];
    };
    for (int64_t other = 0; other < t.dy.sizes[0]; ++other) add(gradients(other).terms);
    for (int source = 0; source < longest_rank(w); ++source)
      add(staged_row(p, norm_backward_exchange(w), 0, source, 0));
  }
}

}  // namespace

ExchangeShape norm_backward_exchange(const Workload& w) {
  const PhaseShape row{PhaseShape::Rows::fixed, DType::f32, w.fields.get_int("n"), 1, 1};
  return {world_size_of(w), 0, {row}, 0, layout_of(w)};
}

Workload SequenceParallelRmsNormBackward::workload(const Ranks& ranks) const {
  return {kName,
          dtype,
          1,
          {{"n", n},
           {"eps", eps},
           {"residual", int64_t{residual}},
           {"weight_offset", weight_offset},
           {"layout", layout},
           {"world_size", int64_t{ranks.world_size}},
           {"fabric", ranks.fabric}}};
}

Call SequenceParallelRmsNormBackward::pack(const Args& a, int64_t length) {
  const Tensor sequence = sequence_tensor(length);
  Tensor dweight = a.dweight;  // one row, as the operation sees it
  if (dweight.rank == 1) dweight = make_tensor(dweight.data, dweight.dtype, {1, dweight.sizes[0]});
  return Call(length, {&a.dy, &a.x, &a.residual, &a.weight, &a.dx, &dweight, &sequence});
}

autotune::OpDef sequence_parallel_rms_norm_backward() {
  autotune::OpDef op;
  op.name = kName;
  op.version = 4;
  op.summary = "gradients of a root-mean-square norm of own rows, its weight's summed over the ranks in the launch";
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = [](const Workload& w, int64_t length) { return symbols_of(w, length, true, norm_backward_exchange(w)); };
  add_rank_call(op);
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    return rms_norm_grid::config_space(norm_of(w), w.threads, rows_of_rank(w, length), target);
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return rms_norm_grid::default_config(norm_of(w), w.threads, rows_of_rank(w, length), target);
  };
  op.predict_us = [](const Workload& w, const Config& c, int64_t length, const Target& target) {
    return rms_norm_grid::predict_us(norm_of(w), c, w.threads, rows_of_rank(w, length), target);
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target& target) {
    Builder(b, w, c, target).build();
  };
  op.grid = [](const Workload&, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {autotune::SizeExpr{c.get_int("programs") + 2}, {}, {}};
  };
  op.workspaces = [](const Workload& w, const Config& c) {
    std::vector<autotune::Workspace> workspaces = rms_norm_grid::workspaces(norm_of(w).n, c);
    workspaces.push_back({"counters", DType::i32, {1}});
    return workspaces;
  };
  op.fill = fill;
  op.reference = reference;
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    return cost_of(norm_of(w), own_rows(w, symbols[0]));
  };
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) {
    return norm_of(w).tolerance(std::max<int64_t>(symbols[0], 1));
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
