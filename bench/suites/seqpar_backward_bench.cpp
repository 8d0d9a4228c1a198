// bench/suites/seqpar_backward_bench.cpp -- backward of the products that communicate, against separate steps.
// SPDX-License-Identifier: Apache-2.0
//
// The methods are those of seqpar_bench.cpp. "unfused" copies all rows and meets at a barrier, then launches both
// products on a rank without peers; the gradient of a leading layer is summed after the launch. Partial sums travel in
// the operands' format.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/fused_race.h"
#include "bench/suites.h"
#include "seqtile/ops/ranks.h"

namespace seqtile::bench {
namespace {

using Leading = kernels::seqpar::SequenceParallelLeadingMatmulBackward;
using Trailing = kernels::seqpar::SequenceParallelTrailingMatmulBackward;

/// A leading product cuts n, a trailing product cuts k. The gathered operand has `narrow` columns: x of a leading
/// product, dz of a trailing product. The other operands have this rank's share of `wide`.
struct Shape {
  bool is_leading;
  DType dtype;
  int64_t m, narrow, wide;
  int64_t own_wide() const { return wide / kRaceRanks; }
  int64_t own_rows() const { return m / kRaceRanks; }
};

autotune::Workload workload_of(const Shape& shape, int world_size) {
  if (!shape.is_leading)
    return Trailing{.n = shape.narrow, .k = shape.own_wide(), .dtype = shape.dtype}.workload(
        {.world_size = world_size});
  return Leading{.n = shape.own_wide(), .k = shape.narrow, .transport = shape.dtype, .dtype = shape.dtype}.workload(
      {.world_size = world_size});
}

class BackwardRacer : public Racer {
 public:
  BackwardRacer(const Environment& environment, const Shape& shape, const RankContext& context)
      : shape_(shape),
        context_(context),
        first_(context.fabric.rank() * shape.own_rows()),
        alone_(std::move(make_thread_fabric(1).front())),
        narrow_(shape.dtype, {shape.m, shape.narrow}),
        gathered_(shape.dtype, {shape.m, shape.narrow}),
        wide_(shape.dtype, {shape.m, shape.own_wide()}),
        w_(shape.dtype, weight_sizes()),
        fused_(shape.dtype, result_sizes()),
        plain_(shape.dtype, result_sizes()),
        partial_(shape.dtype, {shape.m, shape.narrow}),
        fused_dw_(shape.dtype, weight_sizes()),
        plain_dw_(shape.dtype, weight_sizes()),
        whole_op_(environment, context.fabric, workload_of(shape, kRaceRanks), shape.m),
        local_op_(environment, *alone_, workload_of(shape, 1), shape.m) {
    const auto seed = static_cast<uint64_t>(context.fabric.rank());
    narrow_.fill(1, 1);  // equal on all ranks: the same rows that a peer would send
    wide_.fill(seed + 2, 1);
    w_.fill(seed + 4, 1 / std::sqrt(static_cast<double>(shape.is_leading ? shape.own_wide() : shape.narrow)));
  }

  void run(const std::string& method) override {
    if (method == "fused" || method == "fused_nowait") return run_fused(method == "fused");
    const bool communicates = method != "compute_lower_bound", computes = method != "comms_lower_bound";
    if (communicates) gather();
    if (computes) run_local();
    if (communicates && shape_.is_leading) reduce();
  }

  void make_reference() override { run("unfused"); }

  void poison() override {
    fused_.poison();
    fused_dw_.poison();
  }

  double difference() const override {
    return std::max(largest_error(fused_, plain_), largest_error(fused_dw_, plain_dw_));
  }

  void check() const override { whole_op_.check(); }

 private:
  std::vector<int64_t> weight_sizes() const {
    return shape_.is_leading ? std::vector{shape_.own_wide(), shape_.narrow}
                             : std::vector{shape_.narrow, shape_.own_wide()};
  }
  /// dx of this rank's rows for a leading product, du of all rows for a trailing product.
  std::vector<int64_t> result_sizes() const {
    return shape_.is_leading ? std::vector{shape_.own_rows(), shape_.narrow} : std::vector{shape_.m, shape_.own_wide()};
  }

  void run_fused(bool waits) {
    const Tensor own = rows_of(narrow_, first_, shape_.own_rows());
    whole_op_.run(waits, tensors(own, fused_, fused_dw_), shape_.m);
  }
  void run_local() {
    local_op_.run(true, tensors(gathered_.tensor(), shape_.is_leading ? partial_ : plain_, plain_dw_), shape_.m);
  }
  std::vector<Tensor> tensors(const Tensor& narrow, const Operand& result, const Operand& dw) const {
    if (shape_.is_leading) return {wide_.tensor(), w_.tensor(), narrow, result.tensor(), dw.tensor()};
    return {narrow, w_.tensor(), wide_.tensor(), result.tensor(), dw.tensor()};
  }

  BackwardRacer& racer(size_t rank) { return static_cast<BackwardRacer&>(*context_.racers[rank]); }

  void gather() {
    give_rows(context_, rows_of(narrow_, first_, shape_.own_rows()),
              [&](size_t rank) { return rows_of(racer(rank).gathered_, first_, shape_.own_rows()).data; });
  }
  void reduce() {
    context_.barrier.arrive_and_wait();  // all ranks have their partial sums
    const auto of = [&](size_t rank) {
      return static_cast<std::byte*>(rows_of(racer(rank).partial_, first_, shape_.own_rows()).data);
    };
    add_elements(shape_.dtype, of(0), of(1), plain_.as<std::byte>(), shape_.own_rows() * shape_.narrow);
    context_.barrier.arrive_and_wait();  // all ranks have read the partial sums
  }

  const Shape shape_;
  const RankContext context_;
  const int64_t first_;
  std::unique_ptr<Fabric> alone_;
  Operand narrow_, gathered_, wide_, w_, fused_, plain_, partial_, fused_dw_, plain_dw_;
  FusedContestant whole_op_, local_op_;
};

std::vector<Result> run_case(Environment& environment, const Shape& shape, const std::string& operation,
                             const std::vector<std::string>& selected, const RunOptions& options) {
  for (const int world_size : {1, kRaceRanks}) environment.prepare_tuned(workload_of(shape, world_size), shape.m);
  RankRace race;
  race.enter = [&](const RankContext& context) { return std::make_unique<BackwardRacer>(environment, shape, context); };
  race.difference_limit = shape.dtype == DType::f32 ? 1e-4 : 0.03;  // 16-bit partial sums are rounded
  race.operation = operation;
  race.dtype = shape.dtype, race.m = shape.m, race.n = shape.wide, race.k = shape.narrow;
  std::vector<Result> results = race_ranks(race, selected, options.rounds, nullptr);
  compare_methods(results);
  return results;
}

}  // namespace

void add_seqpar_backward_cases(std::vector<Case>& cases, Environment& environment) {
  for (const bool is_leading : {false, true})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const auto& [narrow, wide] : {std::pair{4096, 4096}, {4096, 14336}})
        for (const int m : {256, 1024}) {
          const Shape shape{is_leading, dtype, m, narrow, wide};
          Case item;
          item.operation = fmt::format("sequence_parallel_{}_matmul_backward", is_leading ? "leading" : "trailing");
          item.dtype = dtype_name(dtype);
          item.shape =
              fmt::format("m{}_n{}_k{}_p{}", m, is_leading ? wide : narrow, is_leading ? narrow : wide, kRaceRanks);
          item.group = m >= 1024 ? "m1024.." : "m256..512";
          const double share = static_cast<double>(shape.narrow * shape.own_wide());
          item.work = {4 * m * share, share * static_cast<double>(dtype_bytes(dtype)), 0, dtype};
          item.implementations = {"fused", "fused_nowait", "unfused", "compute_lower_bound", "comms_lower_bound"};
          item.run = [&environment, shape](const Case& self, const std::vector<std::string>& selected,
                                           const RunOptions& options) {
            return run_case(environment, shape, self.operation, selected, options);
          };
          cases.push_back(std::move(item));
        }
}

}  // namespace seqtile::bench
